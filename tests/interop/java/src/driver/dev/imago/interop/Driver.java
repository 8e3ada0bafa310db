package dev.imago.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Reads one JSON command a line on standard input, answers one JSON line each on standard output.
 *
 * <p>A command is {@code {"id": n, "do": name, "with": {arguments}}}; the answer repeats the id and
 * holds {@code result}, or {@code error} with the exception's class and text. Commands run side by
 * side, each in a thread of its own, so an answer may overtake an earlier one. The process ends
 * when its standard input does: it never outlives the test run that started it.
 */
public final class Driver {
    private final Gson gson = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private final Map<String, Command> commands = new TreeMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final PrintStream answers;

    public Driver() {
        answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Client libraries print to standard output; that belongs to the answers alone.
        System.setOut(System.err);
    }

    public Driver on(String name, Command command) {
        commands.put(name, command);
        return this;
    }

    public void serve() throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answer(new LinkedHashMap<>(Map.of("ready", commands.keySet())));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            threads.execute(() -> answer(run(request)));
        }
        // Clients leave threads behind that are not daemons.
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> run(JsonObject request) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", request.get("id").getAsLong());
        try {
            String name = request.get("do").getAsString();
            Command command = commands.get(name);
            if (command == null) {
                throw new IllegalArgumentException("unknown command: " + name);
            }
            answer.put("result", command.run(new Arguments(request.getAsJsonObject("with"))));
        } catch (Throwable thrown) {
            // An Error of a client library is as much a finding as an exception.
            thrown.printStackTrace();
            answer.put("error", describe(thrown));
        }
        return answer;
    }

    private static Map<String, Object> describe(Throwable thrown) {
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("class", thrown.getClass().getName());
        error.put("text", String.valueOf(thrown.getMessage()));
        error.put("cause", thrown.getCause() == null ? null : thrown.getCause().toString());
        try {
            // RocketMQ's exceptions name the response code of the broker.
            error.put("code", thrown.getClass().getMethod("getResponseCode").invoke(thrown));
        } catch (ReflectiveOperationException notOfThatKind) {
            error.put("code", null);
        }
        return error;
    }

    private synchronized void answer(Map<String, Object> answer) {
        answers.println(gson.toJson(answer));
    }
}
