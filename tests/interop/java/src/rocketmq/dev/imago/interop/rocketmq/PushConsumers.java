package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import dev.imago.interop.Inbox;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Commands about push consumers: concurrent, orderly, broadcasting, failing on demand. */
final class PushConsumers {
    private final Handles<Subscriber> subscribers = new Handles<>();

    void register(Driver driver) {
        driver.on("push.start", this::start)
            .on("push.take", this::take)
            .on("push.assigned", this::assigned)
            .on("push.stop", this::stop);
    }

    private Object start(Arguments with) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            with.text("group"), Credentials.hook(), new AllocateMessageQueueAveragely(),
            with.flag("trace"), null);
        Versions.prepare(consumer, with.text("namesrv"), with.text("name"));
        if (with.flag("dealt_out")) {
            Versions.haveQueuesDealtOut(consumer);
        }
        Versions.setEnum(consumer, "setMessageModel", with.text("model", "CLUSTERING"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            with.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setMaxReconsumeTimes(with.count("reconsume_max", -1));
        consumer.setSuspendCurrentQueueTimeMillis(100);
        // A listener that has returned is not yet counted: without this its message comes again.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        if (with.has("sql")) {
            consumer.subscribe(with.text("topic"), MessageSelector.bySql(with.text("sql")));
        } else {
            consumer.subscribe(with.text("topic"), with.text("expression", "*"));
        }
        Subscriber subscriber = new Subscriber(consumer, with);
        if (with.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) subscriber::inOrder);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) subscriber::atOnce);
        }
        subscribers.put(with.text("name"), subscriber);
        consumer.start();
        if (with.has("parent")) {
            readLightQueue(consumer, with);
        }
        return true;
    }

    /** What LMQPushConsumer and LMQPushPopConsumer of RocketMQ's examples do: no route names it. */
    private static void readLightQueue(DefaultMQPushConsumer consumer, Arguments with)
            throws ReflectiveOperationException {
        var implementation = consumer.getDefaultMQPushConsumerImpl();
        var factory = implementation.getmQClientFactory();
        String parent = with.text("parent");
        String broker = with.text("broker");
        factory.updateTopicRouteInfoFromNameServer(parent);
        Versions.addRoute(factory.getTopicRouteTable(), with.text("topic"), parent, broker);
        if (!with.flag("dealt_out")) {
            implementation.updateTopicSubscribeInfo(with.text("topic"),
                Set.of(new MessageQueue(with.text("topic"), broker, 0)));
        }
        factory.doRebalance();
    }

    private Object take(Arguments with) throws InterruptedException {
        return subscribers.get(with.text("name")).inbox
            .take(with.count("count", 1), with.number("timeout_ms"));
    }

    /** The queues that the last rebalance gave to this consumer, of the topic it subscribed. */
    private Object assigned(Arguments with) {
        Subscriber subscriber = subscribers.get(with.text("name"));
        var queues = subscriber.consumer.getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet();
        return Messages.writeQueues(queues.stream()
            .filter(queue -> queue.getTopic().equals(subscriber.topic)).toList());
    }

    private Object stop(Arguments with) {
        subscribers.remove(with.text("name")).consumer.shutdown();
        return true;
    }

    /** Keeps what arrives, with every failed delivery, and fails as often as it was told to. */
    private static final class Subscriber {
        final Inbox inbox = new Inbox();
        final DefaultMQPushConsumer consumer;
        final String topic;
        private final AtomicInteger failuresLeft;
        private final int retryDelayLevel;

        Subscriber(DefaultMQPushConsumer consumer, Arguments with) {
            this.consumer = consumer;
            this.topic = with.text("topic");
            this.failuresLeft = new AtomicInteger(with.count("failures", 0));
            this.retryDelayLevel = with.count("retry_delay_level", 1);
        }

        ConsumeConcurrentlyStatus atOnce(
                List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            context.setDelayLevelWhenNextConsume(retryDelayLevel);
            return keep(messages)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }

        ConsumeOrderlyStatus inOrder(List<MessageExt> messages, ConsumeOrderlyContext context) {
            return keep(messages)
                ? ConsumeOrderlyStatus.SUCCESS
                : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }

        private boolean keep(List<MessageExt> messages) {
            boolean succeeds = failuresLeft.getAndUpdate(left -> Math.max(0, left - 1)) <= 0;
            for (MessageExt message : messages) {
                var form = Messages.write(message);
                form.put("succeeds", succeeds);
                inbox.add(form);
            }
            return succeeds;
        }
    }
}
