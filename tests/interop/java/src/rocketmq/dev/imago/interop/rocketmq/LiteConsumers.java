package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Commands about the lite pull consumer: subscribed or with queues assigned by hand. */
@SuppressWarnings("deprecation")
final class LiteConsumers {
    private final Handles<DefaultLitePullConsumer> consumers = new Handles<>();

    void register(Driver driver) {
        driver.on("lite.start", this::start)
            .on("lite.stop", this::stop)
            .on("lite.assign_all", this::assignAll)
            .on("lite.seek", this::seek)
            .on("lite.poll", this::poll)
            .on("lite.commit", this::commit)
            .on("lite.committed", this::committed);
    }

    private Object start(Arguments with) throws MQClientException {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(with.text("group"));
        Versions.prepare(consumer, with.text("namesrv"), with.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (with.has("sql")) {
            consumer.subscribe(with.text("topic"), MessageSelector.bySql(with.text("sql")));
        } else if (with.has("topic")) {
            consumer.subscribe(with.text("topic"), with.text("expression", "*"));
        }
        consumer.start();
        consumers.put(with.text("name"), consumer);
        return true;
    }

    private Object stop(Arguments with) {
        consumers.remove(with.text("name")).shutdown();
        return true;
    }

    private Object assignAll(Arguments with) throws MQClientException {
        List<MessageQueue> queues =
            new ArrayList<>(consumer(with).fetchMessageQueues(with.text("topic")));
        consumer(with).assign(queues);
        return Messages.writeQueues(queues);
    }

    private Object seek(Arguments with) throws MQClientException {
        consumer(with).seek(Messages.queue(with), with.number("offset"));
        return true;
    }

    /** Polls until {@code count} messages came or the time is over. */
    private Object poll(Arguments with) {
        long end = System.currentTimeMillis() + with.number("timeout_ms");
        List<MessageExt> found = new ArrayList<>();
        while (found.size() < with.count("count", 1) && System.currentTimeMillis() < end) {
            found.addAll(consumer(with).poll(200));
        }
        return Messages.writeAll(found);
    }

    private Object commit(Arguments with) {
        consumer(with).commitSync();
        return true;
    }

    private Object committed(Arguments with) throws MQClientException {
        return consumer(with).committed(Messages.queue(with));
    }

    private DefaultLitePullConsumer consumer(Arguments with) {
        return consumers.get(with.text("consumer"));
    }
}
