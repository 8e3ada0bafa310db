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
        new Driver().on("run", Tools::run).on("names", none -> names()).serve();
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
        Path home = Path.of(System.getProperty("user.home"));
        Path conf = Files.createDirectories(home.resolve("conf"));
        Files.writeString(conf.resolve("logback_tools.xml"), "<configuration/>");
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, home.toString());
    }
}
