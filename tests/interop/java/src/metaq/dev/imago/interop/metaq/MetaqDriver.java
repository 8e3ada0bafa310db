package dev.imago.interop.metaq;

import com.taobao.metamorphosis.client.MessageSessionFactory;
import com.taobao.metamorphosis.client.MetaClientConfig;
import com.taobao.metamorphosis.client.MetaMessageSessionFactory;
import com.taobao.metamorphosis.client.XAMetaMessageSessionFactory;
import com.taobao.metamorphosis.client.extension.AsyncMetaMessageSessionFactory;
import com.taobao.metamorphosis.client.extension.MetaBroadcastMessageSessionFactory;
import com.taobao.metamorphosis.client.extension.OrderedMetaMessageSessionFactory;
import com.taobao.metamorphosis.cluster.Partition;
import com.taobao.metamorphosis.exception.MetaClientException;
import com.taobao.metamorphosis.utils.ZkUtils.ZKConfig;
import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** The original MetaQ client, driven by commands. */
public final class MetaqDriver {
    private final Handles<MessageSessionFactory> factories = new Handles<>();

    private MetaqDriver() {}

    public static void main(String[] none) throws Exception {
        new MetaqDriver().serve();
    }

    private void serve() throws Exception {
        Driver driver = new Driver()
            .on("factory.start", this::start)
            .on("factory.stop", this::stop)
            .on("factory.partitions", this::partitions)
            .on("factory.stats", this::stats);
        new Producers(factories).register(driver);
        new Consumers(factories).register(driver);
        new Backlogs(factories).register(driver);
        new Transactions(factories).register(driver);
        driver.serve();
    }

    private Object start(Arguments with) throws MetaClientException {
        MetaClientConfig config = new MetaClientConfig();
        if (with.has("zookeeper")) {
            config.setZkConfig(zookeeper(with));
        } else {
            config.setServerUrl(with.text("url"));
        }
        config.setRecoverMessageIntervalInMills(with.number("recover_ms", 1000));
        if (with.has("partitions")) {
            Properties counts = new Properties();
            counts.putAll(with.map("partitions"));
            config.setPartitionsInfo(counts);
        }
        factories.put(with.text("name"), create(with.text("kind", "simple"), config));
        return true;
    }

    private static ZKConfig zookeeper(Arguments with) {
        ZKConfig config = new ZKConfig();
        config.zkConnect = with.text("zookeeper");
        config.zkRoot = with.text("root", "/meta");
        config.zkSessionTimeoutMs = 10_000;
        config.zkConnectionTimeoutMs = 10_000;
        // The pause after a failed try to balance: 5 s by default, too long for a test.
        config.zkSyncTimeMs = 500;
        return config;
    }

    private static MessageSessionFactory create(String kind, MetaClientConfig config)
            throws MetaClientException {
        return switch (kind) {
            case "xa" -> new XAMetaMessageSessionFactory(config);
            case "simple" -> new MetaMessageSessionFactory(config);
            case "async" -> new AsyncMetaMessageSessionFactory(config);
            case "ordered" -> new OrderedMetaMessageSessionFactory(config);
            case "broadcast" -> new MetaBroadcastMessageSessionFactory(config);
            default -> throw new IllegalArgumentException("unknown kind of factory: " + kind);
        };
    }

    private Object stop(Arguments with) throws MetaClientException {
        factories.remove(with.text("name")).shutdown();
        return true;
    }

    private Object partitions(Arguments with) {
        List<String> found = new ArrayList<>();
        for (Partition partition : factory(with).getPartitionsForTopic(with.text("topic"))) {
            found.add(partition.toString());
        }
        return found;
    }

    private Object stats(Arguments with) throws InterruptedException {
        Map<String, Object> byAddress = new LinkedHashMap<>();
        if (with.has("address")) {
            URI address = URI.create(with.text("address"));
            var one = factory(with).getStats(
                new InetSocketAddress(address.getHost(), address.getPort()), with.text("item", null));
            byAddress.put(with.text("address"), one.getAllValues());
            return byAddress;
        }
        factory(with).getStats(with.text("item", null)).forEach(
            (address, result) -> byAddress.put(address.toString(), result.getAllValues()));
        return byAddress;
    }

    private MessageSessionFactory factory(Arguments with) {
        return factories.get(with.text("factory"));
    }
}
