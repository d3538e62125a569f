import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.function.Consumer;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;

/** A Jupyter kernel for Java on top of the JDK's own jshell: {@code java Kernel.java CONNECTION_FILE}. */
public final class Kernel {
    private static final byte[] DELIMITER = "<IDS|MSG>".getBytes(StandardCharsets.US_ASCII);
    private static final List<String> IMPORTS = List.of(
            "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*",
            "java.util.function.*", "java.util.regex.*", "java.util.stream.*");

    private final String session = UUID.randomUUID().toString();
    private final SecretKeySpec key;
    private final Peer iopub;
    private final Peer shell;
    private final Peer control;
    private final JShell jshell;
    private volatile String parent = "{}";
    private int count;

    public static void main(String[] arguments) throws Exception {
        new Kernel(Json.object(Files.readString(Path.of(arguments[0])))).serve();
    }

    private Kernel(Map<String, Object> connection) throws IOException {
        if (!"ipc".equals(connection.get("transport"))) {
            throw new IOException("this kernel listens on Unix sockets only");
        }
        key = new SecretKeySpec(connection.get("key").toString().getBytes(StandardCharsets.UTF_8), "HmacSHA256");
        String base = connection.get("ip") + "-";
        // The readers of output first: whoever can ask must also be able to hear.
        PrintStream out = stream("stdout");
        PrintStream err = stream("stderr");
        System.setOut(out);
        System.setErr(err);
        jshell = JShell.builder().executionEngine("local").out(out).err(err).build();
        for (String name : IMPORTS) {
            jshell.eval("import " + name + ";");
        }
        iopub = new Peer(base + number(connection.get("iopub_port")), "PUB");
        control = new Peer(base + number(connection.get("control_port")), "ROUTER");
        shell = new Peer(base + number(connection.get("shell_port")), "ROUTER");
        new Peer(base + number(connection.get("stdin_port")), "ROUTER");
    }

    private static long number(Object value) {
        return ((Number) value).longValue();
    }

    private void serve() {
        inBackground(() -> control.receive(parts -> receive(control, parts)));
        inBackground(() -> iopub.receive(parts -> {}));
        inBackground(iopub::sendQueued);
        shell.receive(parts -> receive(shell, parts));
        // A kernel of a server that is gone can be reached by nobody.
        Runtime.getRuntime().halt(0);
    }

    private static void inBackground(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private void receive(Peer channel, List<byte[]> parts) {
        int start = 0;
        while (start < parts.size() && !java.util.Arrays.equals(parts.get(start), DELIMITER)) {
            start++;
        }
        if (parts.size() < start + 6) {
            return;
        }
        List<byte[]> body = parts.subList(start + 2, start + 6);
        String signature = new String(parts.get(start + 1), StandardCharsets.US_ASCII);
        if (!java.security.MessageDigest.isEqual(sign(body).getBytes(), signature.getBytes())) {
            return;
        }
        String header = new String(body.get(0), StandardCharsets.UTF_8);
        Map<String, Object> content = Json.object(new String(body.get(3), StandardCharsets.UTF_8));
        String type = String.valueOf(Json.object(header).get("msg_type"));
        if (type.equals("interrupt_request")) {
            jshell.stop();
            channel.send(message("interrupt_reply", Map.of("status", "ok"), header));
            return;
        }
        parent = header;
        publish("status", Map.of("execution_state", "busy"));
        if (type.equals("execute_request")) {
            Map<String, Object> reply = execute(String.valueOf(content.get("code")), Boolean.TRUE.equals(content.get("silent")));
            channel.send(message("execute_reply", reply, header));
        } else if (type.equals("kernel_info_request")) {
            channel.send(message("kernel_info_reply", information(), header));
        }
        publish("status", Map.of("execution_state", "idle"));
    }

    private static Map<String, Object> information() {
        String version = System.getProperty("java.version");
        return Map.of(
                "status", "ok", "protocol_version", "5.3", "implementation", "soulbox-java",
                "implementation_version", "1", "banner", "Java " + version,
                "language_info", Map.of("name", "java", "version", version, "mimetype", "text/x-java-source",
                        "file_extension", ".java"));
    }

    private Map<String, Object> execute(String code, boolean silent) {
        if (!silent) {
            if (!code.isBlank()) {
                count++;
            }
            publish("execute_input", Map.of("code", code, "execution_count", Math.max(count, 1)));
        }
        Failure failure = null;
        String value = null;
        try {
            value = evaluate(code);
        } catch (Failure problem) {
            failure = problem;
        }
        System.out.flush();
        System.err.flush();
        if (failure != null) {
            Map<String, Object> told = Map.of(
                    "ename", failure.name, "evalue", failure.getMessage(), "traceback", List.of(failure.trace));
            if (!silent) {
                publish("error", told);
            }
            Map<String, Object> reply = new LinkedHashMap<>(told);
            reply.put("status", "error");
            reply.put("execution_count", count);
            return reply;
        }
        if (value != null && !silent) {
            publish("execute_result", Map.of(
                    "execution_count", count, "metadata", Map.of(), "data", Map.of("text/plain", value)));
        }
        return Map.of("status", "ok", "execution_count", count, "payload", List.of(), "user_expressions", Map.of());
    }

    /** The value of the last snippet when it is an expression. */
    private String evaluate(String code) throws Failure {
        SourceCodeAnalysis analysis = jshell.sourceCodeAnalysis();
        String value = null;
        String rest = code;
        while (!rest.isBlank()) {
            SourceCodeAnalysis.CompletionInfo info = analysis.analyzeCompletion(rest);
            String source = info.source() == null || info.source().isEmpty() ? rest : info.source();
            rest = info.source() == null || info.source().isEmpty() ? "" : info.remaining();
            value = null;
            for (SnippetEvent event : jshell.eval(source)) {
                if (event.causeSnippet() != null) {
                    continue;
                }
                if (event.exception() != null) {
                    throw new Failure(event.exception());
                }
                if (event.status() == Snippet.Status.REJECTED) {
                    throw rejected(event.snippet());
                }
                boolean shown = event.snippet().kind() == Snippet.Kind.EXPRESSION
                        || event.snippet().subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
                value = shown && event.value() != null && !event.value().isEmpty() ? event.value() : null;
            }
        }
        return value;
    }

    private Failure rejected(Snippet snippet) {
        StringBuilder text = new StringBuilder();
        jshell.diagnostics(snippet).forEach(problem -> {
            if (problem.isError()) {
                text.append(problem.getMessage(Locale.ROOT)).append('\n');
            }
        });
        return new Failure("CompilationException", text.toString().strip(), text + "\n" + snippet.source());
    }

    /** What went wrong in a cell, as its author should see it. */
    private static final class Failure extends Exception {
        private final String name;
        private final String trace;

        Failure(String name, String message, String trace) {
            super(message);
            this.name = name;
            this.trace = trace;
        }

        Failure(Throwable problem) {
            this(name(problem), String.valueOf(problem.getMessage()), trace(problem));
        }

        private static String name(Throwable problem) {
            return problem instanceof EvalException thrown ? thrown.getExceptionClassName()
                    : problem instanceof UnresolvedReferenceException ? "UnresolvedReferenceException"
                    : problem.getClass().getName();
        }

        private static String trace(Throwable problem) {
            StringBuilder text = new StringBuilder(name(problem) + ": " + problem.getMessage());
            for (StackTraceElement frame : problem.getStackTrace()) {
                text.append("\n\tat ").append(frame);
            }
            return text.toString();
        }
    }

    /** Text that is sent when a line is full. The end of a line is an event of its own, as in IJava. */
    private PrintStream stream(String name) {
        OutputStream sink = new OutputStream() {
            private final ByteArrayOutputStream pending = new ByteArrayOutputStream();

            @Override
            public synchronized void write(int one) {
                pending.write(one);
            }

            @Override
            public synchronized void write(byte[] bytes, int offset, int length) {
                pending.write(bytes, offset, length);
                if (pending.size() >= 1 << 16) {
                    flush();
                }
            }

            @Override
            public synchronized void flush() {
                String text = pending.toString(StandardCharsets.UTF_8);
                pending.reset();
                if (text.length() > 1 && text.endsWith("\n")) {
                    tell(text.substring(0, text.length() - 1));
                    text = "\n";
                }
                tell(text);
            }

            private void tell(String text) {
                if (!text.isEmpty() && iopub != null) {
                    publish("stream", Map.of("name", name, "text", text));
                }
            }
        };
        return new PrintStream(sink, true, StandardCharsets.UTF_8);
    }

    private void publish(String type, Map<String, Object> content) {
        List<byte[]> parts = new ArrayList<>();
        parts.add(type.getBytes(StandardCharsets.UTF_8));
        parts.addAll(message(type, content, parent));
        iopub.sendFromAnywhere(parts);
    }

    private List<byte[]> message(String type, Map<String, Object> content, String parentHeader) {
        Map<String, Object> header = Map.of(
                "msg_id", UUID.randomUUID().toString(), "session", session, "username", "kernel",
                "date", Instant.now().toString(), "msg_type", type, "version", "5.3");
        List<byte[]> body = new ArrayList<>();
        for (String part : List.of(Json.text(header), parentHeader, "{}", Json.text(content))) {
            body.add(part.getBytes(StandardCharsets.UTF_8));
        }
        List<byte[]> parts = new ArrayList<>(List.of(DELIMITER, sign(body).getBytes(StandardCharsets.US_ASCII)));
        parts.addAll(body);
        return parts;
    }

    private String sign(List<byte[]> body) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(key);
            body.forEach(mac::update);
            return HexFormat.of().formatHex(mac.doFinal());
        } catch (java.security.GeneralSecurityException problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** The listening half of ZMTP 3.0 for one client. */
    private static final class Peer {
        private final ServerSocketChannel server;
        private final String type;
        private final BlockingQueue<List<byte[]>> queue = new ArrayBlockingQueue<>(16);
        private volatile SocketChannel channel;

        Peer(String path, String type) throws IOException {
            this.type = type;
            server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
            server.bind(UnixDomainSocketAddress.of(path));
        }

        /** Waits for the client, then hands on its messages until it goes. */
        void receive(Consumer<List<byte[]>> then) {
            try {
                SocketChannel client = server.accept();
                byte[] greeting = new byte[64];
                greeting[0] = (byte) 0xff;
                greeting[9] = 0x7f;
                greeting[10] = 3;
                System.arraycopy("NULL".getBytes(), 0, greeting, 12, 4);
                write(client, ByteBuffer.wrap(greeting));
                ByteArrayOutputStream ready = new ByteArrayOutputStream();
                ready.write("\u0005READY".getBytes());
                property(ready, "Socket-Type", type);
                property(ready, "Identity", "");
                write(client, frame(4, ready.toByteArray()));
                read(client, 64);
                List<byte[]> parts = new ArrayList<>();
                while (true) {
                    int flags = read(client, 1)[0];
                    long size = (flags & 2) == 0 ? read(client, 1)[0] & 0xff : ByteBuffer.wrap(read(client, 8)).getLong();
                    byte[] body = read(client, Math.toIntExact(size));
                    if ((flags & 4) != 0) {
                        channel = client;
                        continue;
                    }
                    parts.add(body);
                    if ((flags & 1) == 0) {
                        then.accept(parts);
                        parts = new ArrayList<>();
                    }
                }
            } catch (IOException gone) {
                channel = null;
            }
        }

        /**
         * Through a thread of its own: interrupting whoever prints would close the channel under him. The queue is
         * short, so that whoever prints faster than the client reads waits.
         */
        void sendFromAnywhere(List<byte[]> parts) {
            try {
                queue.put(parts);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }

        void sendQueued() {
            try {
                while (true) {
                    send(queue.take());
                }
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }

        synchronized void send(List<byte[]> parts) {
            SocketChannel client = channel;
            if (client == null) {
                return;
            }
            try {
                for (int index = 0; index < parts.size(); index++) {
                    write(client, frame(index + 1 < parts.size() ? 1 : 0, parts.get(index)));
                }
            } catch (IOException gone) {
                channel = null;
            }
        }

        private static void property(ByteArrayOutputStream into, String name, String value) throws IOException {
            into.write(name.length());
            into.write(name.getBytes());
            into.write(ByteBuffer.allocate(4).putInt(value.length()).array());
            into.write(value.getBytes());
        }

        private static ByteBuffer frame(int flags, byte[] body) {
            ByteBuffer buffer = ByteBuffer.allocate(body.length + 9);
            if (body.length < 256) {
                buffer.put((byte) flags).put((byte) body.length);
            } else {
                buffer.put((byte) (flags | 2)).putLong(body.length);
            }
            return buffer.put(body).flip();
        }

        private static void write(SocketChannel client, ByteBuffer buffer) throws IOException {
            while (buffer.hasRemaining()) {
                client.write(buffer);
            }
        }

        private static byte[] read(SocketChannel client, int size) throws IOException {
            ByteBuffer buffer = ByteBuffer.allocate(size);
            while (buffer.hasRemaining()) {
                if (client.read(buffer) < 0) {
                    throw new IOException("the client is gone");
                }
            }
            return buffer.array();
        }
    }

    /** As much JSON as messages need. */
    private static final class Json {
        private final String text;
        private int at;

        private Json(String text) {
            this.text = text;
        }

        @SuppressWarnings("unchecked")
        static Map<String, Object> object(String text) {
            return new Json(text).value() instanceof Map<?, ?> map ? (Map<String, Object>) map : Map.of();
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return text.charAt(at);
        }

        private Object value() {
            switch (next()) {
                case '{': {
                    Map<String, Object> map = new LinkedHashMap<>();
                    at++;
                    while (next() != '}') {
                        String name = string();
                        next();
                        at++;
                        map.put(name, value());
                        if (next() == ',') {
                            at++;
                        }
                    }
                    at++;
                    return map;
                }
                case '[': {
                    List<Object> list = new ArrayList<>();
                    at++;
                    while (next() != ']') {
                        list.add(value());
                        if (next() == ',') {
                            at++;
                        }
                    }
                    at++;
                    return list;
                }
                case '"':
                    return string();
                default: {
                    int start = at;
                    while (at < text.length() && ",]} \n\r\t".indexOf(text.charAt(at)) < 0) {
                        at++;
                    }
                    String word = text.substring(start, at);
                    return switch (word) {
                        case "true" -> true;
                        case "false" -> false;
                        case "null" -> null;
                        default -> Double.valueOf(word);
                    };
                }
            }
        }

        private String string() {
            next();
            StringBuilder result = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char character = text.charAt(at);
                if (character != '\\') {
                    result.append(character);
                    continue;
                }
                character = text.charAt(++at);
                if (character == 'u') {
                    result.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                } else {
                    int escaped = "bfnrt".indexOf(character);
                    result.append(escaped < 0 ? character : "\b\f\n\r\t".charAt(escaped));
                }
            }
            at++;
            return result.toString();
        }

        static String text(Object value) {
            StringBuilder into = new StringBuilder();
            write(into, value);
            return into.toString();
        }

        private static void write(StringBuilder into, Object value) {
            if (value instanceof Map<?, ?> map) {
                String separator = "{";
                for (Map.Entry<?, ?> entry : map.entrySet()) {
                    into.append(separator);
                    write(into, entry.getKey());
                    into.append(':');
                    write(into, entry.getValue());
                    separator = ",";
                }
                into.append(map.isEmpty() ? "{}" : "}");
            } else if (value instanceof List<?> list) {
                into.append('[');
                for (int index = 0; index < list.size(); index++) {
                    into.append(index == 0 ? "" : ",");
                    write(into, list.get(index));
                }
                into.append(']');
            } else if (value instanceof String string) {
                into.append('"');
                for (int index = 0; index < string.length(); index++) {
                    char character = string.charAt(index);
                    if (character == '"' || character == '\\') {
                        into.append('\\').append(character);
                    } else if (character < ' ' || Character.isSurrogate(character)) {
                        into.append(String.format("\\u%04x", (int) character));
                    } else {
                        into.append(character);
                    }
                }
                into.append('"');
            } else {
                into.append(value);
            }
        }
    }
}
