package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;

/** Commands about the pull consumer: the caller chooses queue and offset. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private final Handles<DefaultMQPullConsumer> consumers = new Handles<>();

    void register(Driver driver) {
        driver.on("pull.start", this::start)
            .on("pull.stop", this::stop)
            .on("pull.queues", this::queues)
            .on("pull.find_brokers", this::findBrokers)
            .on("pull.pull", this::pull)
            .on("pull.wait", this::pullOrWait)
            .on("pull.bounds", this::bounds)
            .on("pull.offset_at", this::offsetAt)
            .on("pull.commit", this::commit)
            .on("pull.committed", this::committed);
    }

    private Object start(Arguments with) throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(with.text("group"));
        Versions.prepare(consumer, with.text("namesrv"), with.text("name"));
        consumer.setBrokerSuspendMaxTimeMillis(15_000);
        consumer.start();
        consumers.put(with.text("name"), consumer);
        return true;
    }

    private Object stop(Arguments with) {
        consumers.remove(with.text("name")).shutdown();
        return true;
    }

    private Object queues(Arguments with) throws MQClientException {
        return Messages.writeQueues(
            consumer(with).fetchSubscribeMessageQueues(with.text("topic")));
    }

    /** Has the client know a topic's brokers: it finds none of a light queue by itself. */
    private Object findBrokers(Arguments with) {
        return consumer(with).getDefaultMQPullConsumerImpl().getRebalanceImpl()
            .getmQClientFactory().updateTopicRouteInfoFromNameServer(with.text("topic"));
    }

    private Object pull(Arguments with) throws Exception {
        return write(consumer(with).pull(
            Messages.queue(with), with.text("expression", "*"), with.number("offset"),
            with.count("count_max", 32)));
    }

    /** The same, but the broker holds the request until something arrives. */
    private Object pullOrWait(Arguments with) throws Exception {
        return write(consumer(with).pullBlockIfNotFound(
            Messages.queue(with), with.text("expression", "*"), with.number("offset"),
            with.count("count_max", 32)));
    }

    private static Map<String, Object> write(PullResult result) {
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("status", result.getPullStatus().name());
        form.put("next", result.getNextBeginOffset());
        form.put("min", result.getMinOffset());
        form.put("max", result.getMaxOffset());
        form.put("messages", result.getMsgFoundList() == null
            ? List.of() : Messages.writeAll(result.getMsgFoundList()));
        return form;
    }

    private Object bounds(Arguments with) throws MQClientException {
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("min", consumer(with).minOffset(Messages.queue(with)));
        form.put("max", consumer(with).maxOffset(Messages.queue(with)));
        form.put("earliest_ms", consumer(with).earliestMsgStoreTime(Messages.queue(with)));
        return form;
    }

    private Object offsetAt(Arguments with) throws MQClientException {
        return consumer(with).searchOffset(Messages.queue(with), with.number("ms"));
    }

    private Object commit(Arguments with) throws Exception {
        consumer(with).updateConsumeOffset(Messages.queue(with), with.number("offset"));
        consumer(with).getDefaultMQPullConsumerImpl().getOffsetStore()
            .persist(Messages.queue(with));
        return true;
    }

    /** What the broker holds; −1 where nothing was committed. */
    private Object committed(Arguments with) throws MQClientException {
        return consumer(with).fetchConsumeOffset(Messages.queue(with), true);
    }

    private DefaultMQPullConsumer consumer(Arguments with) {
        return consumers.get(with.text("consumer"));
    }
}
