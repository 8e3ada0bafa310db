package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Commands about the administration client: what the command line tools of RocketMQ stand on. */
final class Administration {
    private final Handles<DefaultMQAdminExt> clients = new Handles<>();

    void register(Driver driver) {
        driver.on("admin.start", this::start)
            .on("admin.stop", this::stop)
            .on("admin.create_topic", this::createTopic)
            .on("admin.delete_topic", this::deleteTopic)
            .on("admin.topics", this::topics)
            .on("admin.topic_config", this::topicConfig)
            .on("admin.topic_stats", this::topicStats)
            .on("admin.route", this::route)
            .on("admin.cluster", this::cluster)
            .on("admin.broker_runtime", this::brokerRuntime)
            .on("admin.broker_config", this::brokerConfig)
            .on("admin.create_group", this::createGroup)
            .on("admin.groups", this::groups)
            .on("admin.delete_group", this::deleteGroup)
            .on("admin.progress", this::progress)
            .on("admin.consumers", this::consumers)
            .on("admin.groups_of_topic", this::groupsOfTopic)
            .on("admin.reset_offset", this::resetOffset)
            .on("admin.put_kv", this::putKv)
            .on("admin.get_kv", this::getKv)
            .on("query.by_id", this::queryById)
            .on("query.by_key", this::queryByKey);
    }

    private Object start(Arguments with) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000L);
        Versions.prepare(admin, with.text("namesrv"), with.text("name"));
        admin.setAdminExtGroup(with.text("name"));
        admin.start();
        clients.put(with.text("name"), admin);
        return true;
    }

    private Object stop(Arguments with) {
        clients.remove(with.text("name")).shutdown();
        return true;
    }

    private Object createTopic(Arguments with) throws Exception {
        TopicConfig config = new TopicConfig(with.text("topic"));
        config.setReadQueueNums(with.count("queues", 4));
        config.setWriteQueueNums(with.count("queues", 4));
        config.setPerm(with.count("perm", 6));
        admin(with).createAndUpdateTopicConfig(with.text("address"), config);
        return true;
    }

    private Object deleteTopic(Arguments with) throws Exception {
        admin(with).deleteTopicInBroker(Set.of(with.text("address")), with.text("topic"));
        return true;
    }

    private Object topics(Arguments with) throws Exception {
        return new TreeSet<>(admin(with).fetchAllTopicList().getTopicList());
    }

    private Object topicConfig(Arguments with) throws Exception {
        TopicConfig config = admin(with).examineTopicConfig(with.text("address"), with.text("topic"));
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("topic", config.getTopicName());
        form.put("read_queues", config.getReadQueueNums());
        form.put("write_queues", config.getWriteQueueNums());
        form.put("perm", config.getPerm());
        return form;
    }

    private Object topicStats(Arguments with) throws Exception {
        List<Object> queues = new ArrayList<>();
        admin(with).examineTopicStats(with.text("topic")).getOffsetTable().forEach((queue, offsets) -> {
            Map<String, Object> form = Messages.write(queue);
            form.put("min", offsets.getMinOffset());
            form.put("max", offsets.getMaxOffset());
            form.put("updated_ms", offsets.getLastUpdateTimestamp());
            queues.add(form);
        });
        return queues;
    }

    private Object route(Arguments with) throws Exception {
        var route = admin(with).examineTopicRouteInfo(with.text("topic"));
        Map<String, Object> queues = new TreeMap<>();
        route.getQueueDatas().forEach(data -> queues.put(data.getBrokerName(), Map.of(
            "read_queues", data.getReadQueueNums(), "write_queues", data.getWriteQueueNums(),
            "perm", data.getPerm())));
        Map<String, Object> brokers = new TreeMap<>();
        route.getBrokerDatas().forEach(
            data -> brokers.put(data.getBrokerName(), new TreeMap<>(data.getBrokerAddrs())));
        return Map.of("queues", queues, "brokers", brokers);
    }

    private Object cluster(Arguments with) throws Exception {
        var info = admin(with).examineBrokerClusterInfo();
        Map<String, Object> brokers = new TreeMap<>();
        info.getBrokerAddrTable().forEach(
            (name, data) -> brokers.put(name, new TreeMap<>(data.getBrokerAddrs())));
        return Map.of("brokers", brokers, "clusters", new TreeMap<>(info.getClusterAddrTable()));
    }

    private Object brokerRuntime(Arguments with) throws Exception {
        return new TreeMap<>(admin(with).fetchBrokerRuntimeStats(with.text("address")).getTable());
    }

    private Object brokerConfig(Arguments with) throws Exception {
        Properties properties = admin(with).getBrokerConfig(with.text("address"));
        return new TreeMap<>(properties);
    }

    /** Creates the group by asking for its settings, changing them and writing them back. */
    private Object createGroup(Arguments with) throws Exception {
        // The class moved between the versions, so it is found, not named.
        var setter = Arrays.stream(DefaultMQAdminExt.class.getMethods())
            .filter(each -> each.getName().equals("createAndUpdateSubscriptionGroupConfig"))
            .findFirst().orElseThrow();
        Object config = setter.getParameterTypes()[1].getConstructor().newInstance();
        config.getClass().getMethod("setGroupName", String.class).invoke(config, with.text("group"));
        config.getClass().getMethod("setRetryMaxTimes", int.class)
            .invoke(config, with.count("retries_max", 16));
        setter.invoke(admin(with), with.text("address"), config);
        return true;
    }

    private Object groups(Arguments with) throws Exception {
        Map<String, Object> forms = new TreeMap<>();
        admin(with).getAllSubscriptionGroup(with.text("address"), 10_000)
            .getSubscriptionGroupTable()
            .forEach((name, group) -> forms.put(name, Map.of(
                "retries_max", group.getRetryMaxTimes(),
                "retry_queues", group.getRetryQueueNums(),
                "enabled", group.isConsumeEnable())));
        return forms;
    }

    private Object deleteGroup(Arguments with) throws Exception {
        admin(with).deleteSubscriptionGroup(with.text("address"), with.text("group"));
        return true;
    }

    private Object progress(Arguments with) throws Exception {
        List<Object> queues = new ArrayList<>();
        admin(with).examineConsumeStats(with.text("group")).getOffsetTable()
            .forEach((queue, offsets) -> {
                Map<String, Object> form = Messages.write(queue);
                form.put("broker_offset", offsets.getBrokerOffset());
                form.put("consumer_offset", offsets.getConsumerOffset());
                queues.add(form);
            });
        return queues;
    }

    private Object consumers(Arguments with) throws Exception {
        var connections = admin(with).examineConsumerConnectionInfo(with.text("group"));
        Set<String> ids = new TreeSet<>();
        connections.getConnectionSet().forEach(each -> ids.add(each.getClientId()));
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("ids", ids);
        form.put("type", String.valueOf(connections.getConsumeType()));
        form.put("model", String.valueOf(connections.getMessageModel()));
        form.put("topics", new TreeSet<>(connections.getSubscriptionTable().keySet()));
        return form;
    }

    private Object groupsOfTopic(Arguments with) throws Exception {
        return new TreeSet<>(admin(with).queryTopicConsumeByWho(with.text("topic")).getGroupList());
    }

    private Object resetOffset(Arguments with) throws Exception {
        Map<MessageQueue, Long> offsets = admin(with).resetOffsetByTimestamp(
            with.text("topic"), with.text("group"), with.number("ms"), true);
        List<Object> queues = new ArrayList<>();
        offsets.forEach((queue, offset) -> {
            Map<String, Object> form = Messages.write(queue);
            form.put("offset", offset);
            queues.add(form);
        });
        return queues;
    }

    private Object putKv(Arguments with) throws Exception {
        admin(with).createAndUpdateKvConfig(
            with.text("namespace"), with.text("key"), with.text("value"));
        return true;
    }

    private Object getKv(Arguments with) throws Exception {
        return admin(with).getKVConfig(with.text("namespace"), with.text("key"));
    }

    private Object queryById(Arguments with) throws Exception {
        return Messages.write(admin(with).viewMessage(with.text("topic"), with.text("id")));
    }

    private Object queryByKey(Arguments with) throws Exception {
        var found = admin(with).queryMessage(
            with.text("topic"), with.text("key"), with.count("count_max", 32),
            with.number("begin_ms", 0), with.number("end_ms", Long.MAX_VALUE));
        return Messages.writeAll(found.getMessageList());
    }

    private DefaultMQAdminExt admin(Arguments with) {
        return clients.get(with.text("admin"));
    }
}
