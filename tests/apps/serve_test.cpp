// `serve` as its clients see it: over loopback, with a model of a few steps.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/happens.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using calm::test::happens;
using calm::test::has;
using calm::test::run_in;
using calm::test::temporary_folder;
using json = nlohmann::json;

namespace {

// A folder with a small CALM and an autoregressive model, made once.
temporary_folder const& served_models() {
    static temporary_folder const folder;
    static bool const made = [] {
        auto const calm = run_in(folder, "train text --data stories:4000 --config tiny --vocabulary 300 --steps 3 "
                                         "--autoencoder-steps 3 --out mine");
        BOOST_REQUIRE_MESSAGE(calm.status == 0, calm.err);
        auto const ar = run_in(folder, "train text --data stories:4000 --config tiny-ar --vocabulary 300 --steps 3 "
                                       "--out ar");
        BOOST_REQUIRE_MESSAGE(ar.status == 0, ar.err);
        return true;
    }();
    static_cast<void>(made);
    return folder;
}

struct http_reply {
    int status = 0;
    std::string head;
    std::string body;  // of a stream, the chunks together
    [[nodiscard]] json value() const { return json::parse(body); }
};

// The content of a chunked body.
std::string joined_chunks(std::string const& body) {
    std::string all;
    for (std::size_t at = 0; at < body.size();) {
        auto const end = body.find("\r\n", at);
        auto const size = std::stoul(body.substr(at, end - at), nullptr, 16);
        if (size == 0) break;
        all += body.substr(end + 2, size);
        at = end + 2 + size + 2;
    }
    return all;
}

// A server process, ended with the object.
class running_server {
public:
    explicit running_server(std::string const& arguments) {
        auto const& folder = served_models();
        auto const began =
            run_in(folder, "rm -f serve.err status pid; { sh -c 'echo $$ >pid; exec env -u CALM_API_KEY serve " +
                               arguments + " --port 0 --threads 1' >/dev/null 2>serve.err; echo $? >status; } & true");
        BOOST_REQUIRE_EQUAL(began.status, 0);
        bool const listens = happens([&] {
            auto const text = folder.content("serve.err");
            auto const at = text.find("listening on http://127.0.0.1:");
            if (at == std::string::npos || text.find("/\n", at) == std::string::npos) return false;
            port_ = static_cast<std::uint16_t>(std::stoul(text.substr(at + 30)));
            return true;
        });
        BOOST_REQUIRE_MESSAGE(listens, folder.content("serve.err"));
        process_ = std::stoi(folder.content("pid"));
    }
    running_server(running_server const&) = delete;
    running_server& operator=(running_server const&) = delete;
    ~running_server() {
        if (!ended()) ::kill(process_, SIGKILL);
        happens([&] { return ended(); });  // the next server uses the same files
    }

    // The exit status after SIGTERM.
    int terminated() {
        ::kill(process_, SIGTERM);
        return happens([&] { return ended(); }) ? std::stoi(served_models().content("status")) : -1;
    }
    [[nodiscard]] bool ended() const { return served_models().content("status").find('\n') != std::string::npos; }

    // A connection on which a request has been sent.
    [[nodiscard]] int sent(std::string const& request) const {
        int const socket = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port_);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket, reinterpret_cast<sockaddr const*>(&address), sizeof address) != 0 ||
            ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) != std::ssize(request))
            throw std::runtime_error("no connection to the server");
        return socket;
    }
    [[nodiscard]] http_reply answer_to(std::string const& request) const {
        int const socket = sent(request);
        std::string all;
        char part[4096];
        for (ssize_t n = 0; (n = ::recv(socket, part, sizeof part, 0)) > 0;)
            all.append(part, static_cast<std::size_t>(n));
        ::close(socket);
        auto const end = all.find("\r\n\r\n");
        if (end == std::string::npos) return {};
        http_reply reply{std::stoi(all.substr(9, 3)), all.substr(0, end), all.substr(end + 4)};
        if (has(reply.head, "Transfer-Encoding: chunked")) reply.body = joined_chunks(reply.body);
        return reply;
    }
    static std::string post(json const& body, std::string const& more = "") {
        auto const text = body.is_string() ? body.get<std::string>() : body.dump();
        return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more +
               "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
    }
    [[nodiscard]] http_reply completion(json const& body, std::string const& more = "") const {
        return answer_to(post(body, more));
    }
    // The value of a metric without labels.
    [[nodiscard]] double metric(std::string const& name) const {
        auto const text = get("/metrics").body;
        auto const at = text.find("\n" + name + " ");
        return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
    }
    [[nodiscard]] http_reply get(std::string const& path, std::string const& more = "") const {
        return answer_to("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more + "\r\n");
    }

private:
    std::uint16_t port_ = 0;
    int process_ = 0;
};

std::string text_of(http_reply const& reply) {
    BOOST_REQUIRE_MESSAGE(reply.status == 200, reply.body);
    return reply.value()["choices"][0]["text"].get<std::string>();
}

// The events of a stream, without the last one, which must be [DONE].
std::vector<json> events_of(http_reply const& reply) {
    std::vector<json> events;
    std::size_t at = 0;
    for (auto end = reply.body.find("\n\n"); end != std::string::npos; end = reply.body.find("\n\n", at)) {
        auto const line = reply.body.substr(at, end - at);
        at = end + 2;
        BOOST_REQUIRE(line.rfind("data: ", 0) == 0);
        if (line == "data: [DONE]") {
            BOOST_TEST(at == reply.body.size());
            return events;
        }
        events.push_back(json::parse(line.substr(6)));
    }
    BOOST_ERROR("no [DONE]");
    return events;
}

// What `generate` prints after the prompt.
std::string generated(std::string const& model, std::string const& prompt, std::string const& arguments) {
    auto const r = run_in(served_models(), "generate " + model + " --threads 2 --prompt '" + prompt + "' " + arguments);
    BOOST_REQUIRE_MESSAGE(r.status == 0, r.err);
    auto const bytes = r.out.substr(prompt.size(), r.out.size() - prompt.size() - 1);
    // JSON has a replacement character for what is not UTF-8.
    return json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

}  // namespace

BOOST_AUTO_TEST_CASE(texts_are_those_of_generate_whatever_others_ask_for) {
    for (std::string const model : {"mine", "ar"}) {
        running_server const server(model);
        auto const body = [](int i) {
            return json{{"prompt", "Mia " + std::to_string(i)},
                        {"max_tokens", 5 + i},
                        {"seed", 7 + i},
                        {"temperature", i % 2 == 0 ? 1.0 : 0.5}};
        };
        constexpr int requests = 12;
        std::vector<std::string> together(requests);
        std::vector<std::thread> clients;
        for (int i = 0; i < requests; ++i)
            clients.emplace_back([&, i] {
                together[static_cast<std::size_t>(i)] = server.completion(body(i)).body;
                static_cast<void>(server.completion({{"prompt", "Mia"}, {"max_tokens", 9}}));  // without a seed
            });
        for (auto& client : clients) client.join();
        for (int i = 0; i < requests; ++i) {
            auto const got = json::parse(together[static_cast<std::size_t>(i)]);
            auto const text = got["choices"][0]["text"].get<std::string>();
            BOOST_TEST(text == text_of(server.completion(body(i))));
            if (i < 4)
                BOOST_TEST(text ==
                           generated(model, "Mia " + std::to_string(i),
                                     "--seed " + std::to_string(7 + i) + " --max-tokens " + std::to_string(5 + i) +
                                         " --temperature " + (i % 2 == 0 ? "1" : "1/2")));
        }
        // Without a seed texts differ. Two may be equal by chance: a CALM of three steps has few different draws.
        std::set<std::string> unseeded;
        for (int i = 0; i < 8; ++i)
            unseeded.insert(text_of(server.completion({{"prompt", "Mia"}, {"max_tokens", 30}})));
        BOOST_TEST(unseeded.size() > 1U);
    }
}

BOOST_AUTO_TEST_CASE(a_stream_has_the_same_text_and_ends_in_order) {
    running_server const server("mine");
    json body{{"prompt", {"Mia", "Tom"}}, {"max_tokens", 23}, {"seed", 3}, {"n", 2}};
    auto const whole = server.completion(body).value();
    BOOST_TEST(whole["choices"].size() == 4u);
    BOOST_TEST(whole["usage"]["completion_tokens"].get<int>() <= 4 * 23);
    body["stream"] = true;
    body["echo"] = true;
    body["stream_options"] = {{"include_usage", true}};
    auto const reply = server.completion(body);
    BOOST_TEST(has(reply.head, "Content-Type: text/event-stream"));
    auto const events = events_of(reply);
    std::vector<std::string> texts(4), reasons(4);
    for (std::size_t i = 0; i + 1 < events.size(); ++i) {
        auto const& choice = events[i]["choices"].at(0);
        auto const at = choice["index"].get<std::size_t>();
        BOOST_TEST(reasons[at].empty());
        texts[at] += choice["text"].get<std::string>();
        if (!choice["finish_reason"].is_null()) reasons[at] = choice["finish_reason"].get<std::string>();
        BOOST_TEST(events[i]["usage"].is_null());
    }
    for (std::size_t i = 0; i < 4; ++i) {
        BOOST_TEST(texts[i] == (i < 2 ? "Mia" : "Tom") + whole["choices"][i]["text"].get<std::string>());
        BOOST_TEST(reasons[i] == whole["choices"][i]["finish_reason"].get<std::string>());
    }
    BOOST_TEST(events.back()["choices"].empty());
    BOOST_TEST((events.back()["usage"] == whole["usage"]));
}

// At temperature 2 many tokens are single bytes, of no character or of one that the next token completes.
BOOST_AUTO_TEST_CASE(a_stream_splits_no_character) {
    running_server const server("ar");
    bool any_replaced = false;
    for (int seed = 0; seed < 12; ++seed) {
        json body{{"prompt", "Gr\u00fc\u00dfe"}, {"max_tokens", 60}, {"seed", seed}, {"temperature", 2}};
        auto const whole = text_of(server.completion(body));
        body["stream"] = true;
        std::string pieces;
        for (auto const& event : events_of(server.completion(body)))  // throws where a piece is not UTF-8
            pieces += event["choices"].at(0)["text"].get<std::string>();
        BOOST_TEST(pieces == whole);
        any_replaced = any_replaced || has(whole, "\ufffd");
    }
    BOOST_TEST(any_replaced);
}

BOOST_AUTO_TEST_CASE(the_server_answers_during_long_prompts_and_many_streams) {
    running_server const server("mine");
    auto const words = [](int n) {
        std::string text;
        for (int i = 0; i < n; ++i) text += "Mia ";
        return text;
    };
    std::vector<int> clients;
    for (int i = 0; i < 40; ++i)
        clients.push_back(server.sent(running_server::post({{"prompt", i % 8 == 0 ? words(500) : "Mia"},
                                                            {"max_tokens", 5000},
                                                            {"stream", true},
                                                            {"ignore_eos", true},
                                                            {"temperature", 0.1}})));
    BOOST_REQUIRE(happens([&] { return server.metric("calm_texts_active") == 40; }));
    for (int i = 0; i < 20; ++i) BOOST_TEST(server.get("/health").status == 200);
    BOOST_TEST(server.metric("calm_texts_active") == 40);  // the answers did not wait for a text
    for (int const client : clients) ::close(client);
    BOOST_TEST(happens([&] { return server.metric("calm_texts_active") == 0; }));
}

BOOST_AUTO_TEST_CASE(fields_of_a_request_do_what_they_say) {
    running_server const server("mine");
    json const plain{{"prompt", "Mia"}, {"max_tokens", 40}, {"seed", 5}};
    auto const with = [&](char const* field, json const& value) {
        auto body = plain;
        body[field] = value;
        return server.completion(body);
    };
    auto const text = text_of(server.completion(plain));
    BOOST_REQUIRE(text.size() > 8);
    auto const stop = text.substr(5, 2);
    auto const stopped = with("stop", json::array({"never here", stop}));
    BOOST_TEST(text_of(stopped) == text.substr(0, text.find(stop)));
    BOOST_TEST(stopped.value()["choices"][0]["finish_reason"] == "stop");
    auto streamed = plain;
    streamed["stop"] = stop;
    streamed["stream"] = true;
    std::string pieces;
    for (auto const& event : events_of(server.completion(streamed)))
        pieces += event["choices"].at(0)["text"].get<std::string>();
    BOOST_TEST(pieces == text_of(stopped));
    BOOST_TEST(text_of(with("echo", true)) == "Mia" + text);
    BOOST_TEST(text_of(with("max_tokens", 0)).empty());
    BOOST_TEST(with("max_tokens", 1).value()["usage"]["completion_tokens"] == 1);
    BOOST_TEST(with("patches", true).value()["choices"][0]["patches"].size() == 10u);
    BOOST_TEST(with("n", 3).value()["choices"].size() == 3u);
    auto const ids = json::parse(run_in(served_models(), "tokenize mine --text Mia --format json").out)["ids"];
    BOOST_TEST(text_of(with("prompt", ids)) == text);
    for (auto const* const field :
         {"temperature", "top_p", "top_k", "n", "stop", "echo", "stream", "stream_options", "sampler", "logprobs",
          "suffix", "user", "logit_bias", "best_of", "model", "patches", "ignore_eos", "presence_penalty"})
        BOOST_TEST(text_of(with(field, nullptr)) == text, field);
    for (auto const* const field : {"prompt", "max_tokens", "seed"}) BOOST_TEST(with(field, nullptr).status == 200);
    for (std::string const name : {"<|begin_of_text|>", "<|end_of_text|>", "</s>"}) {
        auto const special = server.completion({{"prompt", name}, {"max_tokens", 0}, {"echo", true}});
        BOOST_TEST(text_of(special) == name);
        BOOST_TEST(special.value()["usage"]["prompt_tokens"] > 1);
    }
    BOOST_TEST(text_of(with("unknown", 1)) == text);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_answered_is_refused_by_name) {
    running_server const server("mine --context 64");
    struct refused {
        json body;
        int status;
        json param;
        json code;
    };
    std::vector<refused> const cases{
        {{{"prompt", "Mia"}, {"max_tokens", 100}}, 400, "prompt", "context_length_exceeded"},
        {{{"prompt", std::string(100'000, 'a')}}, 400, "prompt", "context_length_exceeded"},
        {{{"prompt", 5}}, 400, "prompt", nullptr},
        {{{"prompt", {70'000}}}, 400, "prompt", nullptr},
        {{{"prompt", {-1}}}, 400, "prompt", nullptr},
        {{{"max_tokens", -1}}, 400, "max_tokens", nullptr},
        {{{"temperature", 3}}, 400, "temperature", nullptr},
        {{{"temperature", 0.7}, {"sampler", "batch"}}, 400, "temperature", nullptr},
        {{{"top_p", 0.9}}, 400, "top_p", nullptr},
        {{{"sampler", "best"}}, 400, "sampler", nullptr},
        {{{"stop", ""}}, 400, "stop", nullptr},
        {{{"stop", {"a", "b", "c", "d", "e"}}}, 400, "stop", nullptr},
        {{{"n", 1000}}, 400, "n", nullptr},
        {{{"prompt", std::string(200, 'a')}, {"echo", 5}}, 400, "echo", nullptr},
        {{{"logprobs", 2}}, 400, "logprobs", nullptr},
        {{{"model", "another"}}, 404, "model", "model_not_found"},
        {"{", 400, nullptr, nullptr},
        {"[1]", 400, nullptr, nullptr},
        {R"({"prompt":"a","prompt":"b"})", 400, nullptr, nullptr},
        {std::string(10'000, '['), 400, nullptr, nullptr},
        {R"({"prompt":")" + std::string(2'000'000, 'a') + R"("})", 413, nullptr, nullptr}};
    for (auto const& one : cases) {
        auto const reply = server.completion(one.body);
        BOOST_REQUIRE_MESSAGE(reply.status == one.status, one.body << ": " << reply.body);
        auto const found = reply.value()["error"];
        BOOST_TEST((found["param"] == one.param && found["code"] == one.code), one.body << ": " << reply.body);
        BOOST_TEST(found["type"] == "invalid_request_error");
    }
    BOOST_TEST(server
                   .answer_to("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                              "Transfer-Encoding: chunked\r\n\r\n9\r\n{\"prompt\"\r\n8\r\n:\"Mia\",\"\r\nd\r\n"
                              "max_tokens\":1\r\n1\r\n}\r\n0\r\n\r\n")
                   .status == 200);
    BOOST_TEST(server.get("/v1/completions").status == 405);
    BOOST_TEST(server.get("/etc/passwd").status == 404);
    auto const chat = server.answer_to("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                       "Content-Length: 2\r\n\r\n{}");
    BOOST_TEST(chat.status == 404);
    BOOST_TEST(has(chat.body, "texts come from POST /v1/completions, and a base model has no chat"), chat.body);
    BOOST_TEST(server.get("/run").status == 404);
    BOOST_TEST(server.get("/health").status == 200);
}

BOOST_AUTO_TEST_CASE(a_key_is_required_and_other_sites_are_refused) {
    running_server const server("mine --api-key secret");
    json const body{{"prompt", "Mia"}, {"max_tokens", 4}};
    BOOST_TEST(server.completion(body).status == 401);
    BOOST_TEST(server.completion(body, "Authorization: Bearer secre\r\n").status == 401);
    BOOST_TEST(server.completion(body, "Authorization: Bearer secret2\r\n").status == 401);
    BOOST_TEST(server.completion(body, "Authorization: Bearer secret\r\n").status == 200);
    BOOST_TEST(server.get("/v1/models").status == 401);
    BOOST_TEST(server.get("/metrics").status == 401);
    BOOST_TEST(server.get("/health").status == 200);
    BOOST_TEST(server.get("/").status == 200);
    BOOST_TEST(server.get("/health", "Origin: http://evil.example\r\n").status == 403);
    BOOST_TEST(server.answer_to("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status == 403);
    auto const open = run_in(served_models(), "serve mine --host 0.0.0.0 --port 0");
    BOOST_TEST(open.status == 2);
    BOOST_TEST(has(open.err, "--api-key KEY, or --insecure"));
}

BOOST_AUTO_TEST_CASE(a_client_that_leaves_frees_its_place_and_a_full_queue_is_an_error) {
    running_server const server("mine --at-once 1 --queue 1");
    for (bool const stream : {true, false}) {
        // At this temperature an untrained model draws 200 patches for each: the first text lasts long.
        auto const long_text = running_server::post(
            {{"prompt", "Mia"}, {"max_tokens", 8000}, {"stream", stream}, {"ignore_eos", true}, {"temperature", 0.1}});
        int const first = server.sent(long_text);
        BOOST_REQUIRE(happens([&] { return server.metric("calm_texts_active") == 1; }));
        int const second = server.sent(long_text);
        BOOST_REQUIRE(happens([&] { return server.metric("calm_texts_queued") == 1; }));
        auto const refused = server.completion({{"prompt", "Mia"}});
        BOOST_TEST(refused.status == 429);
        BOOST_TEST(has(refused.head, "Retry-After: 1"));
        // A text that waits leaves the queue with its client.
        ::close(second);
        BOOST_TEST(happens([&] { return server.metric("calm_texts_queued") == 0; }));
        ::close(first);
        BOOST_TEST(
            happens([&] { return server.metric("calm_texts_active") + server.metric("calm_texts_queued") == 0; }));
    }
    BOOST_TEST(server.metric("calm_tokens_total") < 8000);
    BOOST_TEST(server.completion({{"prompt", "Mia"}, {"max_tokens", 4}}).status == 200);
}

BOOST_AUTO_TEST_CASE(a_signal_ends_the_server_after_its_texts) {
    running_server idle("mine");
    BOOST_TEST(idle.terminated() == 0);
    running_server busy("mine --drain 0 --at-once 1");
    json const body{
        {"prompt", "Mia"}, {"max_tokens", 8000}, {"stream", true}, {"ignore_eos", true}, {"temperature", 0.5}};
    int const client = busy.sent(running_server::post(body)), waiting = busy.sent(running_server::post(body));
    std::string all(1, '\0');
    BOOST_REQUIRE(::recv(client, all.data(), 1, 0) == 1);
    BOOST_REQUIRE(happens([&] { return busy.metric("calm_texts_queued") == 1; }));
    int status = -1;
    std::thread ending([&] { status = busy.terminated(); });
    for (int const socket : {client, waiting}) {
        char part[4096];
        for (ssize_t n = 0; (n = ::recv(socket, part, sizeof part, 0)) > 0;)
            all.append(part, static_cast<std::size_t>(n));
        ::close(socket);
        BOOST_TEST(has(all, "\"finish_reason\":\"length\""));
        BOOST_TEST(has(all, "data: [DONE]"));
        all.clear();
    }
    ending.join();
    BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(a_run_is_shown_with_and_without_a_model) {
    running_server const server("--run mine");
    BOOST_TEST(server.get("/run").value()["name"] == "mine");
    BOOST_TEST(server.get("/run").value()["finished"] == true);
    auto const metrics = server.get("/run/metrics").body;
    BOOST_TEST(metrics == served_models().content("mine/model/metrics.jsonl"));
    BOOST_TEST(server.get("/run/metrics?from=" + std::to_string(metrics.size())).body.empty());
    BOOST_TEST(server.get("/run/metrics?from=x").status == 400);
    BOOST_TEST(server.get("/run/../run.json").status == 404);
    BOOST_TEST(server.get("/v1/models").value()["data"].empty());
    BOOST_TEST(server.completion({{"prompt", "Mia"}}).status == 404);
    auto const page = server.get("/");
    BOOST_TEST(has(page.head, "Content-Security-Policy: default-src 'none'; script-src 'sha256-"));
    BOOST_TEST(has(server.get("/openapi.json").body, "createCompletion"));
}
