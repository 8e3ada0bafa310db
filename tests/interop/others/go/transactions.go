package main

import (
	"context"
	"fmt"
	"strings"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const transactions = 20

// decider ends a transaction as its body says, or leaves it open until the broker asks.
type decider struct{}

func decision(body []byte) primitive.LocalTransactionState {
	if strings.Contains(string(body), "kept") {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	if strings.Contains(string(message.Body), "asked") {
		return primitive.UnknowState
	}
	return decision(message.Body)
}

func (decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return decision(message.Body)
}

// transact sends messages in transactions and adds those that are to arrive; stop it after that.
func transact(ctx context.Context, servers []string, topic string, sent map[string]bool) func() {
	p, err := rocketmq.NewTransactionProducer(decider{},
		producer.WithNameServer(servers), producer.WithGroupName("go-transactions"))
	must(err, "producer of transactions")
	must(p.Start(), "start producer of transactions")
	kinds := []string{"kept", "dropped", "asked kept", "asked dropped"}
	for number := 0; number < transactions; number++ {
		kind := kinds[number%len(kinds)]
		body := fmt.Sprintf("transaction %d %s", number, kind)
		if strings.Contains(kind, "kept") {
			sent[body] = true
		}
		message := primitive.NewMessage(topic, []byte(body)).WithTag("even")
		_, err := p.SendMessageInTransaction(ctx, message)
		must(err, "send in a transaction")
	}
	return func() { must(p.Shutdown(), "stop producer of transactions") }
}
