package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Reading;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** A group that comes back to a backlog: what it gets is counted, and not kept. */
final class Backlogs {
    void register(Driver driver) {
        driver.on("backlog.read", this::read);
    }

    /** Reads with the client's own settings, but for those that are named, until all have come. */
    private Object read(Arguments with) throws Exception {
        Reading reading = new Reading(with.number("count"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(with.text("group"));
        consumer.setNamesrvAddr(with.text("namesrv"));
        consumer.setInstanceName(with.text("group"));
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(with.count("pull_batch", consumer.getPullBatchSize()));
        consumer.setConsumeThreadMin(with.count("threads", consumer.getConsumeThreadMin()));
        consumer.setConsumeThreadMax(with.count("threads", consumer.getConsumeThreadMax()));
        consumer.setConsumeMessageBatchMaxSize(
            with.count("consume_batch", consumer.getConsumeMessageBatchMaxSize()));
        consumer.setPullThresholdForQueue(
            with.count("cached", consumer.getPullThresholdForQueue()));
        consumer.subscribe(with.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> reading.count(message.getBody().length));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            Map<String, Object> form = reading.await(with.number("timeout_ms"));
            form.put("held_back", timesHeldBack(consumer));
            return form;
        } finally {
            consumer.shutdown();
        }
    }

    /** How often the client put a pull off because too much waited for its listeners. */
    private static long timesHeldBack(DefaultMQPushConsumer consumer)
            throws ReflectiveOperationException {
        var times = DefaultMQPushConsumerImpl.class.getDeclaredField("queueFlowControlTimes");
        times.setAccessible(true);
        return times.getLong(consumer.getDefaultMQPushConsumerImpl());
    }
}
