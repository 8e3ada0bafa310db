package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Commands about producers, one for each way of sending. */
final class Producers {
    private static final long SEND_TIMEOUT_MS = 10_000;
    private final Handles<DefaultMQProducer> producers = new Handles<>();

    void register(Driver driver) {
        driver.on("producer.start", this::start)
            .on("producer.stop", this::stop)
            .on("producer.queues", this::queues)
            .on("producer.send", this::send)
            .on("producer.send_to_queue", this::sendToQueue)
            .on("producer.send_by_hash", this::sendByHash)
            .on("producer.send_async", this::sendAsync)
            .on("producer.try_async", this::tryAsync)
            .on("producer.send_one_way", this::sendOneWay)
            .on("producer.send_batch", this::sendBatch)
            .on("producer.recall", this::recall)
            .on("producer.request", this::request)
            .on("producer.reply", this::reply);
    }

    private Object start(Arguments with) throws Exception {
        DefaultMQProducer producer = create(
            with.text("group"), with.text("compression", "ZLIB"), with.flag("trace"));
        Versions.prepare(producer, with.text("namesrv"), with.text("name"));
        producer.setSendMsgTimeout((int) SEND_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(with.count("retries", 2));
        producer.setRetryTimesWhenSendAsyncFailed(with.count("retries", 2));
        producer.setCompressMsgBodyOverHowmuch(with.count("compress_over", 4096));
        producer.setMaxMessageSize(with.count("size_max", 4 << 20));
        producer.start();
        producers.put(with.text("name"), producer);
        return true;
    }

    /** Version 4.9 knows the kind of compression only as a system property, read on creation. */
    private static synchronized DefaultMQProducer create(
            String group, String compression, boolean trace) {
        System.setProperty("rocketmq.message.compressType", compression);
        return new DefaultMQProducer(group, Credentials.hook(), trace, null);
    }

    private Object stop(Arguments with) {
        producers.remove(with.text("name")).shutdown();
        return true;
    }

    private Object queues(Arguments with) throws MQClientException {
        return Messages.writeQueues(
            producer(with).fetchPublishMessageQueues(with.text("topic")));
    }

    private Object send(Arguments with) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Message message : Messages.readAll(with)) {
            results.add(Messages.write(producer(with).send(message)));
        }
        return results;
    }

    private Object sendToQueue(Arguments with) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Message message : Messages.readAll(with)) {
            results.add(Messages.write(producer(with).send(message, Messages.queue(with))));
        }
        return results;
    }

    /** Messages with equal first key go to the same queue. */
    private Object sendByHash(Arguments with) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Message message : Messages.readAll(with)) {
            SendResult result = producer(with).send(
                message,
                (queues, each, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size())),
                message.getKeys());
            results.add(Messages.write(result));
        }
        return results;
    }

    private Object sendAsync(Arguments with) throws Exception {
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<Object> done : startAsync(with)) {
            results.add(done.get(SEND_TIMEOUT_MS * 2, TimeUnit.MILLISECONDS));
        }
        return results;
    }

    /** The same, where some may fail: a text instead of the form of each that did. */
    private Object tryAsync(Arguments with) throws Exception {
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<Object> done : startAsync(with)) {
            results.add(done.exceptionally(Throwable::toString)
                .get(SEND_TIMEOUT_MS * 2, TimeUnit.MILLISECONDS));
        }
        return results;
    }

    private List<CompletableFuture<Object>> startAsync(Arguments with) throws Exception {
        List<CompletableFuture<Object>> pending = new ArrayList<>();
        for (Message message : Messages.readAll(with)) {
            CompletableFuture<Object> done = new CompletableFuture<>();
            pending.add(done);
            producer(with).send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.complete(Messages.write(result));
                }

                @Override
                public void onException(Throwable thrown) {
                    done.completeExceptionally(thrown);
                }
            });
        }
        return pending;
    }

    private Object sendOneWay(Arguments with) throws Exception {
        for (Message message : Messages.readAll(with)) {
            producer(with).sendOneway(message);
        }
        return true;
    }

    private Object sendBatch(Arguments with) throws Exception {
        return Messages.write(producer(with).send(Messages.readAll(with)));
    }

    private Object recall(Arguments with) throws Exception {
        return Versions.recall(producer(with), with.text("topic"), with.text("handle"));
    }

    /** Sends a request and waits for its reply. */
    private Object request(Arguments with) throws Exception {
        Message reply = producer(with)
            .request(Messages.readAll(with).get(0), with.number("timeout_ms"));
        return Messages.write((MessageExt) reply);
    }

    /** Replies to a request that a consumer was given, by its properties. */
    private Object reply(Arguments with) throws Exception {
        Message request = new Message();
        with.map("request").forEach((name, value) ->
            MessageAccessor.putProperty(request, name, value));
        Message reply = MessageUtil.createReplyMessage(request, with.bytes("body"));
        return Messages.write(producer(with).send(reply));
    }

    private DefaultMQProducer producer(Arguments with) {
        return producers.get(with.text("producer"));
    }
}
