package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * The command line mqadmin as a driver: a JVM for each of its hundred commands would take minutes.
 *
 * <p>Options that a command does not know end the process, as they end mqadmin.
 */
public final class Tools {
    private Tools() {}

    public static void main(String[] arguments) throws Exception {
        prepare();
        new Driver()
                .on("run", Tools::run)
                .on("become", Tools::become)
                .on("names", none -> names())
                .serve();
    }

    /** Has the commands that follow be those of a user, over TLS or without it. */
    private static synchronized String become(Arguments given) throws IOException {
        String user = given.text("user");
        String password = given.text("password");
        System.setProperty("interop.user", user);
        System.setProperty("interop.password", password);
        // 4.9 takes credentials from this file alone.
        String keys = "accessKey: %s%nsecretKey: %s%n".formatted(user, password);
        Files.writeString(conf().resolve("tools.yml"), keys);
        TlsSystemConfig.tlsEnable = given.flag("tls");
        return user;
    }

    /** Runs a command as mqadmin does and returns what it prints, on either output. */
    private static synchronized String run(Arguments given) throws ReflectiveOperationException {
        // Some commands keep a client for life, which is stopped after its first use.
        commands().clear();
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, given.text("namesrv"));
        var printed = new ByteArrayOutputStream();
        var capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main0(
                    given.texts("line").toArray(String[]::new), Credentials.hook());
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    private static synchronized List<String> names() throws ReflectiveOperationException {
        commands().clear();
        MQAdminStartup.initCommand();
        return commands().stream().map(SubCommand::commandName).toList();
    }

    /** mqadmin's own list, whose name differs between the versions. */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                return (List<SubCommand>) field.get(null);
            }
        }
        throw new NoSuchFieldException("mqadmin's list of commands");
    }

    /** 4.9 does nothing, and says nothing, unless its home folder has settings for its log. */
    private static void prepare() throws IOException {
        Files.writeString(conf().resolve("logback_tools.xml"), "<configuration/>");
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, System.getProperty("user.home"));
    }

    private static Path conf() throws IOException {
        return Files.createDirectories(Path.of(System.getProperty("user.home"), "conf"));
    }
}
