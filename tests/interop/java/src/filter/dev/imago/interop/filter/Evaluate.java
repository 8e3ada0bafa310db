package dev.imago.interop.filter;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What the original's filter makes of expressions and properties: one line in, one line out.
 *
 * In: the expression, then name and value of each property, all base64, separated by tabs.
 * Out: true, false, null, thrown, or "refused" and the reason.
 */
public final class Evaluate {
    private Evaluate() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split("\t", -1)).replace('\n', ' ').replace('\r', ' '));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(words[0]));
        } catch (Throwable error) {
            return "refused " + error.getMessage();
        }
        Map<String, String> properties = new HashMap<>();
        for (int i = 1; i + 1 < words.length; i += 2) {
            properties.put(text(words[i]), text(words[i + 1]));
        }
        try {
            return String.valueOf(expression.evaluate(new Properties(properties)));
        } catch (Throwable error) {
            return "thrown";
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private record Properties(Map<String, String> values) implements EvaluationContext {
        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(values);
        }
    }
}
