// RocketMQ 5's Go SDK, as its own documentation uses it: with TLS unless told otherwise, and any certificate.
//
//	main STORY ENDPOINTS TOPIC [plain | USER], the password in SDK_PASSWORD
//
// Prints what became of the story as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	wait         = 100 * time.Second
	nothingFound = 40401
)

type found map[string]any

var (
	config = rmq.Config{Credentials: &credentials.SessionCredentials{}}
	topic  string
)

func main() {
	story := os.Args[1]
	config.Endpoint, topic = os.Args[2], os.Args[3]
	if len(os.Args) > 4 && os.Args[4] == "plain" {
		rmq.EnableSsl = false
	} else if len(os.Args) > 4 {
		config.Credentials.AccessKey = os.Args[4]
		config.Credentials.AccessSecret = os.Getenv("SDK_PASSWORD")
	}
	stories := map[string]func() found{
		"normal": normal, "fifo": fifo, "delay": delay, "transaction": transaction,
		"push": push, "stubborn": stubborn, "again": again, "letters": letters, "send": send, "read": read,
		"urgent": urgent, "chats": chats, "steady": steady,
	}
	printed, err := json.Marshal(stories[story]())
	check(err)
	fmt.Println(string(printed))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func normal() found {
	producer := started()
	for number := range 10 {
		made := message("n" + strconv.Itoa(number))
		made.SetTag([]string{"even", "odd"}[number%2])
		made.SetKeys("k" + strconv.Itoa(number))
		made.AddProperty("colour", "red")
		sent(producer.Send(context.TODO(), made))
	}
	stop(producer)
	all := reader("all", topic, rmq.SUB_ALL)
	got := all.take(10)
	stop(all)
	tagged := reader("odd", topic, rmq.NewFilterExpression("odd"))
	odd := tagged.take(5)
	stop(tagged)
	filter := rmq.NewFilterExpressionWithType("colour = 'red' AND TAGS = 'odd'", rmq.SQL92)
	queried := reader("sql", topic, filter)
	sql := queried.take(5)
	stop(queried)
	first := got[slices.IndexFunc(got, func(one *rmq.MessageView) bool { return string(one.GetBody()) == "n1" })]
	return found{
		"bodies": sorted(got), "odd": sorted(odd), "sql": sorted(sql), "tag": first.GetTag(),
		"keys": first.GetKeys(), "properties": first.GetProperties(), "attempt": first.GetDeliveryAttempt(),
	}
}

func fifo() found {
	producer := started()
	for number := range 12 {
		made := message("f" + strconv.Itoa(number))
		made.SetMessageGroup("g" + strconv.Itoa(number%3))
		sent(producer.Send(context.TODO(), made))
	}
	stop(producer)
	ordered := reader("ordered", topic, rmq.SUB_ALL)
	groups := found{}
	for _, body := range bodies(ordered.take(12)) {
		number, err := strconv.Atoi(body[1:])
		check(err)
		group := strconv.Itoa(number % 3)
		before, _ := groups[group].([]string)
		groups[group] = append(before, body)
	}
	stop(ordered)
	return groups
}

func delay() found {
	producer := started()
	late := reader("late", topic, rmq.SUB_ALL)
	due := time.Now().Add(8 * time.Second)
	handle := ""
	for _, body := range []string{"late", "recalled"} {
		made := message(body)
		made.SetDelayTimestamp(due)
		handle = sent(producer.Send(context.TODO(), made)).RecallHandle
	}
	_, err := producer.Recall(context.TODO(), topic, handle)
	check(err)
	got := late.take(1)
	early := time.Now().Before(due.Add(-2 * time.Second))
	more := late.once(1, 20*time.Second)
	stop(late)
	stop(producer)
	return found{"bodies": bodies(got), "early": early, "more": bodies(more)}
}

func transaction() found {
	commits := &rmq.TransactionChecker{Check: func(*rmq.MessageView) rmq.TransactionResolution { return rmq.COMMIT }}
	producer := started(rmq.WithTransactionChecker(commits))
	for _, how := range []string{"commit", "rollback", "orphan"} {
		begun := producer.BeginTransaction()
		sent(producer.SendWithTransaction(context.TODO(), message(how), begun))
		switch how {
		case "commit":
			check(begun.Commit())
		case "rollback":
			check(begun.RollBack())
		}
	}
	done := reader("done", topic, rmq.SUB_ALL)
	got := done.take(2)
	stop(done)
	stop(producer)
	return found{"bodies": sorted(got)}
}

// push has a push consumer that fails once with one message.
func push() found {
	producer := started()
	for number := range 5 {
		sent(producer.Send(context.TODO(), message("p"+strconv.Itoa(number))))
	}
	stop(producer)
	seen := pushed("push", 6, failingOnce("p0"))
	got := seen.stop()
	slices.Sort(got)
	return found{"seen": got}
}

// stubborn has a push consumer of an ordered group that fails once with the first message.
func stubborn() found {
	producer := started()
	for number := range 3 {
		made := message("s" + strconv.Itoa(number))
		made.SetMessageGroup("one")
		sent(producer.Send(context.TODO(), made))
	}
	stop(producer)
	seen := pushed("stubborn", 4, failingOnce("s0"))
	return found{"seen": seen.stop()}
}

// urgent sends messages of priorities, the lowest one first.
func urgent() found {
	producer := started()
	for priority := 1; priority < 4; priority++ {
		made := message("u" + strconv.Itoa(priority))
		check(made.SetPriority(int32(priority)))
		sent(producer.Send(context.TODO(), made))
	}
	stop(producer)
	consumer := reader("urgent", topic, rmq.SUB_ALL)
	got := bodies(consumer.take(3))
	stop(consumer)
	return found{"bodies": got}
}

// chats has a push consumer of two lite topics, which gives one of them up.
func chats() found {
	producer := started()
	var lock sync.Mutex
	seen := map[string][]string{}
	count := 0
	listener := &rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		name := view.GetLiteTopic()
		seen[name] = append(seen[name], string(view.GetBody()))
		slices.Sort(seen[name])
		count++
		return rmq.SUCCESS
	}}
	until := func(wanted int) {
		for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			lock.Lock()
			done := count >= wanted
			lock.Unlock()
			if done {
				return
			}
		}
	}
	consumer, err := rmq.NewLitePushConsumer(
		as(topic+"-chats"), rmq.NewLitePushConsumerConfig(topic, 30*time.Second),
		rmq.WithPushAwaitDuration(5*time.Second), rmq.WithPushMessageListener(listener),
	)
	check(err)
	check(consumer.Start())
	say := func(lite, body string) {
		made := message(body)
		made.SetLiteTopic(lite)
		sent(producer.Send(context.TODO(), made))
	}
	check(consumer.SubscribeLite("ann"))
	check(consumer.SubscribeLite("bob"))
	say("ann", "a0")
	say("ann", "a1")
	say("bob", "b0")
	say("eve", "e0")
	until(3)
	check(consumer.UnSubscribeLite("bob"))
	say("bob", "b1")
	say("ann", "a2")
	until(4)
	stop(producer)
	stop(consumer)
	lock.Lock()
	defer lock.Unlock()
	all := found{}
	for name, bodies := range seen {
		all[name] = bodies
	}
	return all
}

// again gets what is not acknowledged twice.
func again() found {
	producer := started()
	sent(producer.Send(context.TODO(), message("twice")))
	stop(producer)
	hidden := reader("again", topic, rmq.SUB_ALL)
	first := hidden.receive(1, 10*time.Second)[0]
	check(hidden.ChangeInvisibleDuration(first, 10*time.Second))
	second := hidden.take(1)[0]
	stop(hidden)
	return found{"attempts": []int32{first.GetDeliveryAttempt(), second.GetDeliveryAttempt()}}
}

// letters has a push consumer that always fails: its group gives the message up.
func letters() found {
	producer := started()
	sent(producer.Send(context.TODO(), message("dead")))
	stop(producer)
	seen := pushed("letters", 2, func(*rmq.MessageView) bool { return true })
	dead := reader("dead", "%DLQ%"+topic+"-letters", rmq.SUB_ALL)
	got := dead.take(1)
	stop(dead)
	return found{"dead": bodies(got), "seen": seen.stop()}
}

// steady sends and receives until standard input ends, whatever becomes of brokers meanwhile.
func steady() found {
	var lock sync.Mutex
	faults := map[string]int{}
	fault := func(what string) {
		lock.Lock()
		faults[what]++
		lock.Unlock()
		time.Sleep(100 * time.Millisecond)
	}
	stopped, sending := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stopped)
	}()
	over := func() bool {
		select {
		case <-stopped:
			return true
		default:
			return false
		}
	}
	sentAll := []string{}
	go func() {
		defer close(sending)
		producer := started()
		for number := 0; !over(); number++ {
			body := "t" + strconv.Itoa(number)
			if _, err := producer.Send(context.TODO(), message(body)); err != nil {
				fault("send")
				continue
			}
			sentAll = append(sentAll, body)
			if len(sentAll)%20 == 0 {
				fmt.Println(len(sentAll))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	seen, done, again := map[string]bool{}, map[string]bool{}, []string{}
	lost := func() []string {
		left := []string{}
		for _, body := range sentAll {
			if !seen[body] {
				left = append(left, body)
			}
		}
		return left
	}
	consumer := reader("readers", topic, rmq.SUB_ALL)
	for end := (time.Time{}); end.IsZero() || time.Now().Before(end); {
		if over() && end.IsZero() {
			<-sending
			end = time.Now().Add(wait)
		}
		got, err := consumer.Receive(context.TODO(), 32, 20*time.Second)
		if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == nothingFound {
			if over() && !end.IsZero() && len(lost()) == 0 {
				break
			}
			continue
		}
		if err != nil {
			fault("receive")
		}
		for _, view := range got {
			body, handle := string(view.GetBody()), view.GetReceiptHandle()
			record := handle[strings.LastIndex(handle, " ")+1:]
			seen[body] = true
			if done[record] { // what was sent twice has two
				again = append(again, body)
			}
			if err := consumer.Ack(context.TODO(), view); err != nil {
				fault("ack")
				continue
			}
			done[record] = true
		}
	}
	return found{"sent": len(sentAll), "lost": lost(), "again": again, "faults": faults}
}

// send sends one message, or says why not.
func send() found {
	producer, err := made()
	if err == nil {
		_, err = producer.Send(context.TODO(), message("sent"))
	}
	if err != nil {
		return found{"refused": err.Error()}
	}
	stop(producer)
	return found{"sent": 1}
}

// read reads what others have sent.
func read() found {
	others := reader("others", topic, rmq.SUB_ALL)
	got := others.take(4)
	stop(others)
	return found{"bodies": sorted(got)}
}

func message(body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func made(options ...rmq.ProducerOption) (rmq.Producer, error) {
	producer, err := rmq.NewProducer(&config, append(options, rmq.WithTopics(topic))...)
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

func started(options ...rmq.ProducerOption) rmq.Producer {
	producer, err := made(options...)
	check(err)
	return producer
}

func sent(receipts []*rmq.SendReceipt, err error) *rmq.SendReceipt {
	check(err)
	return receipts[0]
}

func stop(client interface{ GracefulStop() error }) {
	check(client.GracefulStop())
}

func as(group string) *rmq.Config {
	own := config
	own.ConsumerGroup = group
	return &own
}

type simple struct{ rmq.SimpleConsumer }

// reader waits for its topic: of dead letters there is none before the first.
func reader(suffix, of string, filter *rmq.FilterExpression) simple {
	for until := time.Now().Add(wait); ; time.Sleep(500 * time.Millisecond) {
		consumer, err := rmq.NewSimpleConsumer(
			as(topic+"-"+suffix),
			rmq.WithSimpleAwaitDuration(5*time.Second),
			rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{of: filter}),
		)
		check(err)
		if err = consumer.Start(); err == nil {
			return simple{consumer}
		}
		if time.Now().After(until) {
			log.Fatal(err)
		}
	}
}

// once receives; nothing found is an error to this SDK.
func (s simple) once(count int32, invisible time.Duration) []*rmq.MessageView {
	got, err := s.Receive(context.TODO(), count, invisible)
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == nothingFound {
		return nil
	}
	check(err)
	return got
}

func (s simple) receive(count int, invisible time.Duration) []*rmq.MessageView {
	var got []*rmq.MessageView
	for until := time.Now().Add(wait); len(got) < count && time.Now().Before(until); {
		got = append(got, s.once(min(32, int32(count)), invisible)...)
	}
	return got
}

// take receives, and acknowledges what it gets.
func (s simple) take(count int) []*rmq.MessageView {
	var got []*rmq.MessageView
	for until := time.Now().Add(wait); len(got) < count && time.Now().Before(until); {
		for _, view := range s.once(32, 20*time.Second) {
			check(s.Ack(context.TODO(), view))
			got = append(got, view)
		}
	}
	return got
}

type pushing struct {
	rmq.PushConsumer
	lock sync.Mutex
	seen []string
	left sync.WaitGroup
}

// failingOnce is asked by one listener at a time.
func failingOnce(body string) func(*rmq.MessageView) bool {
	failed := false
	return func(view *rmq.MessageView) bool {
		fails := string(view.GetBody()) == body && !failed
		failed = failed || fails
		return fails
	}
}

// pushed consumes until it has seen a number of deliveries.
func pushed(suffix string, deliveries int, fails func(*rmq.MessageView) bool) *pushing {
	p := &pushing{}
	p.left.Add(deliveries)
	listener := &rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
		p.lock.Lock()
		defer p.lock.Unlock()
		p.seen = append(p.seen, fmt.Sprintf("%s %d", view.GetBody(), view.GetDeliveryAttempt()))
		if len(p.seen) <= deliveries {
			p.left.Done()
		}
		if fails(view) {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	consumer, err := rmq.NewPushConsumer(
		as(topic+"-"+suffix),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(listener),
	)
	check(err)
	check(consumer.Start())
	p.PushConsumer = consumer
	return p
}

// stop ends the consumer once its deliveries have come; it returns all that it has seen, in order.
func (p *pushing) stop() []string {
	waited := make(chan struct{})
	go func() { p.left.Wait(); close(waited) }()
	select {
	case <-waited:
	case <-time.After(wait):
	}
	stop(p.PushConsumer)
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.seen
}

func bodies(views []*rmq.MessageView) []string {
	all := []string{}
	for _, view := range views {
		all = append(all, string(view.GetBody()))
	}
	return all
}

func sorted(views []*rmq.MessageView) []string {
	all := bodies(views)
	slices.Sort(all)
	return all
}
