// Sends in every way the Go client has, also in transactions, and reads it back in every way: push, in order, broadcast, pull.
//
//	try NAMESRV BROKER TOPIC
//
// Prints one JSON line: how many messages were sent, and what was wrong.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	readSeconds = 100
	retried     = "single 7"
)

// bodies counts what one reader saw.
type bodies struct {
	sync.Mutex
	name string
	seen map[string]int
}

func (b *bodies) add(messages []*primitive.MessageExt) {
	b.Lock()
	defer b.Unlock()
	for _, message := range messages {
		b.seen[string(message.Body)]++
	}
}

func (b *bodies) count() int {
	b.Lock()
	defer b.Unlock()
	return len(b.seen)
}

func (b *bodies) faults(sent map[string]bool) []string {
	b.Lock()
	defer b.Unlock()
	var found []string
	for body := range sent {
		if b.seen[body] != 1 {
			found = append(found, fmt.Sprintf("%s saw %.30q %d times", b.name, body, b.seen[body]))
		}
	}
	if len(b.seen) > len(sent) {
		found = append(found, fmt.Sprintf("%s saw what nobody sent", b.name))
	}
	return found
}

func must(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("error")
	servers, broker, topic := []string{os.Args[1]}, os.Args[2], os.Args[3]
	ctx := context.Background()
	tools, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(servers)))
	must(err, "admin")
	must(tools.CreateTopic(ctx, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(broker)), "create topic")

	sent, faults := send(ctx, servers, topic)
	stopTransactions := transact(ctx, servers, topic, sent)
	readers, stop := push(ctx, servers, topic)
	for second := 0; second < readSeconds; second++ {
		whole := 0
		for _, reader := range readers {
			if reader.count() == len(sent) {
				whole++
			}
		}
		if whole == len(readers) {
			break
		}
		time.Sleep(time.Second)
	}
	readers = append(readers, pull(ctx, servers, topic, len(sent)))
	for _, reader := range readers {
		faults = append(faults, reader.faults(sent)...)
	}
	stop()
	stopTransactions()
	must(tools.DeleteTopic(ctx, admin.WithTopicDelete(topic)), "delete topic")
	line, _ := json.Marshal(map[string]any{"sent": len(sent), "faults": append([]string{}, faults...)})
	fmt.Println(string(line))
}

// send sends one by one, without waiting, without an answer, in a batch, compressed and delayed.
func send(ctx context.Context, servers []string, topic string) (map[string]bool, []string) {
	sent, faults := map[string]bool{}, []string{}
	p, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName("go-producer"))
	must(err, "producer")
	must(p.Start(), "start producer")
	message := func(format string, number int) *primitive.Message {
		body := fmt.Sprintf(format, number)
		sent[body] = true
		tag := []string{"even", "odd"}[number%2]
		return primitive.NewMessage(topic, []byte(body)).WithTag(tag).WithKeys([]string{fmt.Sprint("key", number)})
	}
	one := func(messages ...*primitive.Message) {
		answer, err := p.SendSync(ctx, messages...)
		must(err, "send")
		if answer.Status != primitive.SendOK {
			faults = append(faults, fmt.Sprint("send: status ", answer.Status))
		}
	}
	for number := 0; number < 50; number++ {
		one(message("single %d", number))
	}
	var answers sync.WaitGroup
	var lock sync.Mutex
	for number := 0; number < 50; number++ {
		answers.Add(1)
		done := func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				lock.Lock()
				faults = append(faults, "send without waiting: "+err.Error())
				lock.Unlock()
			}
			answers.Done()
		}
		must(p.SendAsync(ctx, done, message("unwaited %d", number)), "send without waiting")
	}
	answers.Wait()
	for number := 0; number < 20; number++ {
		must(p.SendOneWay(ctx, message("one way %d", number)), "send without an answer")
	}
	var batch []*primitive.Message
	for number := 0; number < 30; number++ {
		batch = append(batch, message("of a batch %d", number))
	}
	one(batch...)
	one(message(strings.Repeat("compressible ", 30_000)+"%d", 0))
	one(message("delayed %d", 0).WithDelayTimeLevel(1))
	must(p.Shutdown(), "stop producer")
	return sent, faults
}

// push starts a push consumer, one that reads in order, and one that reads everything of its group.
func push(_ context.Context, servers []string, topic string) ([]*bodies, func()) {
	var readers []*bodies
	var consumers []rocketmq.PushConsumer
	refused := false
	start := func(name, tags string, options ...consumer.Option) {
		reader := &bodies{name: name, seen: map[string]int{}}
		readers = append(readers, reader)
		usual := []consumer.Option{
			consumer.WithNameServer(servers), consumer.WithGroupName("go-" + name), consumer.WithInstance(name),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		}
		c, err := rocketmq.NewPushConsumer(append(usual, options...)...)
		must(err, name)
		consumers = append(consumers, c)
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
		must(c.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if name == "push" && string(messages[0].Body) == retried && !refused {
				refused = true
				return consumer.ConsumeRetryLater, nil
			}
			reader.add(messages)
			return consumer.ConsumeSuccess, nil
		}), "subscribe")
		must(c.Start(), "start "+name)
	}
	start("push", "even || odd")
	start("ordered", "*", consumer.WithConsumerOrder(true))
	start("broadcast", "*", consumer.WithConsumerModel(consumer.BroadCasting))
	return readers, func() {
		for _, c := range consumers {
			must(c.Shutdown(), "stop consumer")
		}
	}
}

func pull(ctx context.Context, servers []string, topic string, count int) *bodies {
	reader := &bodies{name: "pull", seen: map[string]int{}}
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName("go-pull"), consumer.WithInstance("pull"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err, "pull consumer")
	must(c.Subscribe(topic, consumer.MessageSelector{}), "subscribe")
	must(c.Start(), "start pull consumer")
	for end := time.Now().Add(readSeconds * time.Second); reader.count() < count && time.Now().Before(end); {
		polled, err := c.Poll(ctx, time.Second)
		if err != nil {
			continue // nothing came in time
		}
		reader.add(polled.GetMsgList())
		c.ACK(ctx, polled, consumer.ConsumeSuccess)
	}
	must(c.Shutdown(), "stop pull consumer")
	return reader
}
