// Sends and reads as somebody.
//
//	credentials NAMESRV TOPIC GROUP COUNT [USER PASSWORD_FILE]
//
// Prints one JSON line: how many messages were sent and read, and what the broker refused.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const readSeconds = 100

func must(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	servers, topic, group := []string{os.Args[1]}, os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	must(err, "count")
	sends := []producer.Option{
		producer.WithNameServer(servers), producer.WithGroupName("go-" + group), producer.WithRetry(0),
	}
	reads := []consumer.Option{
		consumer.WithNameServer(servers), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	if len(os.Args) > 5 {
		password, err := os.ReadFile(os.Args[6])
		must(err, "password")
		who := primitive.Credentials{AccessKey: os.Args[5], SecretKey: strings.TrimSpace(string(password))}
		sends, reads = append(sends, producer.WithCredentials(who)), append(reads, consumer.WithCredentials(who))
	}
	sent, refused := send(servers, topic, count, sends)
	seen := 0
	if refused == "" {
		seen = read(topic, count, reads)
	}
	line, _ := json.Marshal(map[string]any{"sent": sent, "read": seen, "refused": refused})
	fmt.Println(string(line))
}

// send sends until somebody refuses a message.
func send(servers []string, topic string, count int, options []producer.Option) (int, string) {
	p, err := rocketmq.NewProducer(options...)
	must(err, "producer")
	must(p.Start(), "start producer")
	defer p.Shutdown()
	for number := 0; number < count; number++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprint("message ", number)))
		if _, err := p.SendSync(context.Background(), message); err != nil {
			return number, err.Error()
		}
	}
	return count, ""
}

// read counts the different messages that come.
func read(topic string, count int, options []consumer.Option) int {
	var lock sync.Mutex
	seen := map[string]bool{}
	c, err := rocketmq.NewPushConsumer(options...)
	must(err, "consumer")
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range messages {
			seen[string(message.Body)] = true
		}
		return consumer.ConsumeSuccess, nil
	}
	must(c.Subscribe(topic, consumer.MessageSelector{}, take), "subscribe")
	must(c.Start(), "start consumer")
	defer c.Shutdown()
	for end := time.Now().Add(readSeconds * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		lock.Lock()
		found := len(seen)
		lock.Unlock()
		if found >= count {
			return found
		}
	}
	lock.Lock()
	defer lock.Unlock()
	return len(seen)
}
