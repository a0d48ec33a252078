#include "serve/service.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/runs/detail/load_evaluator.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/train/detail/throughput.hpp"
#include "program.hpp"
#include "run/report.hpp"
#include "run/run_record.hpp"
#include "run/text_record.hpp"
#include "serve/api_error.hpp"
#include "serve/completion_answer.hpp"
#include "serve/http_server.hpp"
#include "serve/page.hpp"
#include "serve/request_rate.hpp"
#include "serve/run_files.hpp"
#include "serve/service_metrics.hpp"
#include "serve/text_generator.hpp"
#include "stored_work.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

constexpr char const* json_type = "application/json";
constexpr char const* plain_type = "text/plain; charset=utf-8";
constexpr index_t usual_context = 8192;                  // tokens: bounds the caches of all texts
constexpr index_t exact_draws = 2000;                    // of the exact rule per patch: others wait for them
constexpr std::size_t run_bytes = std::size_t{1} << 20;  // of a run's file per answer

// Compares every byte whatever the first difference, so that the time tells nothing about the key.
bool equal_keys(std::string_view a, std::string_view b) {
    unsigned different = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size(); ++i)
        different |= static_cast<unsigned char>(a[i]) ^ (b.empty() ? 1U : static_cast<unsigned char>(b[i % b.size()]));
    return different == 0;
}

// A model as the server offers it.
struct served_model {
    std::string name;
    tokenizer const* text;
    text_generator* generator;
    bool autoregressive;
    index_t longest_token;  // bytes
    index_t K;              // tokens per patch
    index_t capacity;       // patches per text, with its prompt
    index_t pool;
    std::vector<token_id> ends;

    [[nodiscard]] index_t context_tokens() const { return capacity * K; }
};

// Answers requests. Its functions run on the server's thread.
class request_router {
public:
    request_router(serve_options const& o, served_model const* model) :
        options_(o), model_(model), created_(std::chrono::system_clock::now()), rate_(static_cast<double>(o.rate)) {}

    void handle(http_request request, std::shared_ptr<http_answer> answer, std::size_t connections) {
        auto const [status, type, body, more] = [&] {
            try {
                return answer_of(request, answer, connections);
            } catch (...) {
                return refusal({500, failure_now().text, "", ""});
            }
        }();
        if (status == answers_itself) return;
        metrics_.answered(is_known(request.path) ? request.path : "other", status);
        answer->send(status, type, body, more);
    }
    void drain() { draining_ = true; }

private:
    static constexpr int answers_itself = 0;
    struct reply {
        int status;  // or answers_itself: of a completion
        std::string type;
        std::string body;
        std::vector<http_answer::header> more = {};
    };
    static constexpr std::string_view paths[] = {"/",    "/health",      "/v1/completions", "/v1/models",   "/metrics",
                                                 "/run", "/run/metrics", "/run/samples",    "/openapi.json"};

    static bool is_known(std::string_view path) {
        return std::find(std::begin(paths), std::end(paths), path) != std::end(paths);
    }

    static reply refusal(api_error const& wrong, std::vector<http_answer::header> more = {}) {
        return {wrong.status, json_type, wrong.json(), std::move(more)};
    }
    static reply json_reply(nlohmann::ordered_json const& value) { return {200, json_type, json_line(value)}; }

    reply answer_of(http_request const& request, std::shared_ptr<http_answer> const& answer, std::size_t connections) {
        bool const completes = request.path == completions_path;
        if (std::string_view const expected = completes ? "POST" : "GET";
            is_known(request.path) && request.method != expected)
            if (completes || request.method != "HEAD")
                return refusal({405, "expected " + std::string(expected) + ", found " + printable_line(request.method),
                                "", "method_not_allowed"},
                               {{"Allow", std::string(expected)}});
        if (request.path == "/")
            return {200,
                    "text/html; charset=utf-8",
                    std::string(page_of_server()),
                    {{"Content-Security-Policy", policy_}, {"Referrer-Policy", "no-referrer"}}};
        if (request.path == "/openapi.json") return {200, json_type, std::string(openapi_of_server())};
        if (request.path == "/health")
            return draining_ ? reply{503, json_type, R"({"status":"draining"})"} : json_reply({{"status", "ok"}});
        if (!options_.api_key.empty() && !equal_keys(request.authorization, "Bearer " + options_.api_key))
            return refusal(
                {401, "expected the header Authorization: Bearer KEY with the server's key", "", "invalid_api_key"},
                {{"WWW-Authenticate", "Bearer"}});
        if (completes) {
            if (!rate_.allows(request.client, steady_seconds()))
                return refusal({429,
                                "too many requests: expected at most " + std::to_string(options_.rate) +
                                    " per second from one address",
                                "", "rate_limit_exceeded"},
                               {{"Retry-After", "1"}});
            return complete(request, answer);
        }
        if (request.path == "/v1/models") return json_reply({{"object", "list"}, {"data", models()}});
        if (model_ != nullptr && request.path == "/v1/models/" + model_->name) return json_reply(models().front());
        if (request.path == "/metrics")
            return {200, "text/plain; version=0.0.4; charset=utf-8",
                    metrics_.text(model_ != nullptr ? model_->generator->queued() : 0,
                                  model_ != nullptr ? model_->generator->active() : 0, connections)};
        if (!options_.run.empty())
            if (auto found = run_reply(request)) return *found;
        return refusal({404,
                        "there is no " + printable_line(request.path) + " here: " +
                            (request.method == "POST" ? "texts come from POST " + std::string(completions_path) +
                                                            ", and a base model has no chat; "
                                                      : "") +
                            "/openapi.json lists what there is",
                        "", "not_found"});
    }

    [[nodiscard]] nlohmann::ordered_json models() const {
        auto list = nlohmann::ordered_json::array();
        if (model_ == nullptr) return list;
        auto samplers = nlohmann::ordered_json::array();
        if (!model_->autoregressive)
            for (auto const name : sampling_rule_names) samplers.push_back(name);
        using namespace std::chrono;
        list.push_back({{"id", model_->name},
                        {"object", "model"},
                        {"created", duration_cast<seconds>(created_.time_since_epoch()).count()},
                        {"owned_by", "calm"},
                        {"calm",
                         {{"kind", model_->autoregressive ? "autoregressive" : "calm"},
                          {"patch_size", model_->K},
                          {"context_tokens", model_->context_tokens()},
                          {"samplers", samplers}}}});
        return list;
    }

    // One of the files of the run, or its name.
    [[nodiscard]] std::optional<reply> run_reply(http_request const& request) const {
        auto const run = run_in(options_.run);
        if (request.path == "/run") return json_reply({{"name", run.name}, {"finished", run.finished}});
        char const* const file = request.path == "/run/metrics"   ? metrics_file
                                 : request.path == "/run/samples" ? samples_file
                                                                  : nullptr;
        if (file == nullptr) return std::nullopt;
        auto const from = offset_in_query(request.query);
        if (!from) return refusal({400, "expected from=BYTE with a whole number", "from", ""});
        return reply{200, plain_type, lines_from(in_directory(run.directory, file), *from, run_bytes)};
    }

    reply complete(http_request const& request, std::shared_ptr<http_answer> const& answer) {
        try {
            if (model_ == nullptr) throw api_error{404, "this server shows a training run and has no model", "", ""};
            if (draining_) throw api_error{503, "the server is about to stop", "", "draining"};
            return begin(parse_completion_request(request.body), answer);
        } catch (api_error const& wrong) {
            return refusal(wrong);
        }
    }

    // Tokens of a prompt; patches of K and max_tokens more must fit the context.
    [[nodiscard]] std::vector<token_id> tokens_of(std::variant<std::string, std::vector<token_id>> const& prompt,
                                                  index_t max_tokens) const {
        std::vector<token_id> tokens;
        if (auto const* const ids = std::get_if<1>(&prompt)) {
            for (token_id const id : *ids)
                if (id >= model_->text->vocabulary_size())
                    throw api_error{400,
                                    "\"prompt\": expected ids below " +
                                        std::to_string(model_->text->vocabulary_size()) + ", found " +
                                        std::to_string(id),
                                    "prompt", ""};
            tokens = *ids;
        } else {
            auto const& text = std::get<0>(prompt);
            // Refused without the work of encoding it.
            if (std::ssize(text) > model_->context_tokens() * model_->longest_token)
                refuse_length(std::ssize(text) / model_->longest_token, max_tokens);
            tokens = model_->text->encode(text);
        }
        auto const special = model_->text->specials();
        index_t const begun = std::ssize(after_bos(special, tokens));
        if (begun == 0)
            throw api_error{400, "\"prompt\": expected a prompt: the vocabulary has no BOS to begin with", "prompt",
                            ""};
        if (begun % model_->K != 0 && special.pad < 0)
            throw api_error{400,
                            "\"prompt\": the vocabulary has no PAD: expected a multiple of " +
                                std::to_string(model_->K) + " tokens, found " + std::to_string(begun),
                            "prompt", ""};
        if (patches_needed(special, tokens, max_tokens, model_->K) > model_->capacity)
            refuse_length(std::ssize(tokens), max_tokens);
        return tokens;
    }
    [[noreturn]] void refuse_length(index_t prompt, index_t max_tokens) const {
        throw api_error{400,
                        "this model's maximum context length is " + std::to_string(model_->context_tokens()) +
                            " tokens, and the request needs at least " + std::to_string(prompt + max_tokens) + " (" +
                            std::to_string(prompt) + " in the prompt, " + std::to_string(max_tokens) +
                            " in the completion): shorten the prompt or max_tokens",
                        "prompt", "context_length_exceeded"};
    }

    reply begin(completion_request request, std::shared_ptr<http_answer> const& answer) {
        if (!request.model.empty() && request.model != model_->name)
            throw api_error{
                404, "there is no model " + in_quotes(request.model, '"') + " here: expected \"" + model_->name + "\"",
                "model", "model_not_found"};
        auto const rule = sampler_of_request(request, model_->autoregressive, model_->pool, exact_draws);
        index_t const n = request.n, max_tokens = request.max_tokens;
        auto const texts = request.prompts.size() * static_cast<std::size_t>(n);
        if (texts > model_->generator->most_queued())
            throw api_error{400,
                            "expected at most " + std::to_string(model_->generator->most_queued()) +
                                " texts per request (--queue of the server), found " +
                                std::to_string(request.prompts.size()) + " prompts times n = " + std::to_string(n),
                            n > 1 ? "n" : "prompt", ""};
        if (max_tokens > 0 && !model_->generator->has_room(texts))
            return refusal({429, "too many texts wait already: try again later", "", "queue_full"},
                           {{"Retry-After", "1"}});
        std::vector<std::vector<token_id>> prompts;
        for (auto const& prompt : request.prompts) prompts.push_back(tokens_of(prompt, max_tokens));
        if (request.echo) require_short_echo(prompts, n);
        auto const seed = request.seed ? *request.seed : random_seed();
        auto const ends = request.ignore_eos ? std::vector<token_id>{-1} : model_->ends;
        auto const to = std::make_shared<completion_answer>(std::move(request), prompts, seed, model_->name,
                                                            *model_->text, metrics_, answer);
        std::vector<text_order> orders;
        for (std::size_t i = 0; i < to->texts() && max_tokens > 0; ++i)
            orders.push_back({to,
                              i,
                              prompts[i / static_cast<std::size_t>(n)],
                              {.sampler = rule,
                               .max_tokens = max_tokens,
                               .seed = seed,
                               .prompt_number = static_cast<std::uint32_t>(i),
                               .ends = ends}});
        to->begin();
        model_->generator->add(std::move(orders));
        return {answers_itself, "", ""};
    }
    // An answer that echoes more than its client reads at once would be closed.
    void require_short_echo(std::vector<std::vector<token_id>> const& prompts, index_t n) const {
        std::size_t bytes = 0;
        for (auto const& prompt : prompts)
            for (token_id const id : prompt) bytes += model_->text->bytes(id).size();
        if (bytes * static_cast<std::size_t>(n) > completion_request::most_echoed)
            throw api_error{400,
                            "\"echo\": expected prompts of at most " + std::to_string(completion_request::most_echoed) +
                                " bytes, times n, found " + std::to_string(bytes * static_cast<std::size_t>(n)),
                            "echo", ""};
    }

    // Of 53 bits, which every client reads exactly.
    static std::uint64_t random_seed() {
        std::random_device random;
        return (std::uint64_t{random()} << 21) ^ (random() & 0x1FFFFFU);
    }

    serve_options const& options_;
    served_model const* model_;  // or null
    std::chrono::system_clock::time_point created_;
    std::string policy_ = policy_of_page(page_of_server());
    request_rate rate_;
    service_metrics metrics_;
    bool draining_ = false;
};

// What is done with texts when the server stops.
struct texts_under_way {
    std::function<bool()> exist = [] { return false; };
    std::function<void()> close = [] {};  // no more are added
    std::function<void()> cut = [] {};    // they end at their next patch
};

// Listens, and serves until a signal. Then ends the texts under way, and stops. Returns the exit status.
int listen_and_serve(serve_options const& o, request_router& router, texts_under_way const& texts) {
    // Names by which a browser on this machine reaches a loopback address; others reach it by any name.
    std::vector<std::string> const hosts = is_loopback(o.host)
                                               ? std::vector<std::string>{"localhost", "127.0.0.1", "::1", o.host}
                                               : std::vector<std::string>{};
    auto const address = o.host == "localhost" ? "127.0.0.1" : o.host;
    http_limits limits;
    limits.body_bytes = longest_json;
    limits.unread_bytes = 8 * completion_request::most_echoed;  // JSON escapes a byte as at most six
    http_server* running = nullptr;
    http_server server(address, static_cast<std::uint16_t>(o.port), hosts, limits,
                       [&](http_request request, std::shared_ptr<http_answer> answer) {
                           router.handle(std::move(request), std::move(answer), running->connections());
                       });
    running = &server;
    auto const shown = address.find(':') != std::string::npos ? "[" + address + "]" : address;
    note_signals("takes no more requests and ends the texts under way; the same signal again (Ctrl-C) stops at once\n");
    log_line(sentence("listening on http://", shown, ":", server.port(), "/"));
    std::optional<double> draining, without_texts;  // since then
    bool was_cut = false;
    server.run([&] {
        if (noted_signal() == 0) return;
        if (!draining) {
            draining = steady_seconds();
            router.drain();
            server.drain();
            texts.close();
        }
        double const now = steady_seconds();
        if (texts.exist()) {
            if (now - *draining > static_cast<double>(o.drain) && !std::exchange(was_cut, true)) texts.cut();
            return;
        }
        if (!without_texts) without_texts = now;
        constexpr double to_send_the_end = 2;  // s
        if (server.connections() == 0 || now - *without_texts > to_send_the_end) server.stop();
    });
    return 0;
}

// Bytes of the keys and values of one patch, or token.
double cache_bytes_per_position(stored_model const& stored) {
    auto const sizes = is_autoregressive(stored) ? stored.autoregressive().llama : llama_sizes_of(stored.sizes);
    return 2.0 * sizeof(float) *
           static_cast<double>(sizes.num_hidden_layers * sizes.num_key_value_heads * sizes.head_size());
}

index_t longest_token_of(tokenizer const& text) {
    std::size_t longest = 1;
    for (token_id id = 0; id < text.vocabulary_size(); ++id) longest = std::max(longest, text.bytes(id).size());
    return static_cast<index_t>(longest);
}

// The name under which a directory's model is offered: that of the run or folder.
std::string name_of_model(std::string const& directory) {
    auto const name = name_of_directory(directory);
    return name == model_stage ? name_of_directory(in_directory(directory, "..")) : name;
}

}  // namespace

int serve_model(loading const& from, serve_options const& o, stored_model const& stored) {
    auto const& d = stored.description;
    require(d.kind != model_kind::autoencoder, errc::config, stored.directory,
            ": expected a language model, found an autoencoder, which generates no text by itself");
    bool const autoregressive = is_autoregressive(stored);
    index_t const K = tokens_per_position(stored);
    index_t const context = o.context > 0 ? o.context : std::min(d.max_position_embeddings * K, usual_context);
    index_t const capacity = (context + K - 1) / K;
    auto const text = load_tokenizer(stored);
    auto const model = from.load(stored, text.vocabulary_size(), text.specials(),
                                 {.threads = o.threads,
                                  .device = o.device.number_here(),
                                  .seed = o.seed,
                                  .in_int8 = o.weights == held_weights::int8});
    auto const batch = model->text_batch(o.at_once, capacity, limits_of_serving);
    text_generator generator(*batch, static_cast<std::size_t>(o.queue));
    served_model const served{o.name.empty() ? name_of_model(stored.directory) : o.name,
                              &text,
                              &generator,
                              autoregressive,
                              longest_token_of(text),
                              K,
                              capacity,
                              o.pool,
                              stored.ends};
    log_line(sentence(
        "model ", served.name, ": ", K, K > 1 ? " tokens per patch, " : " token per step, ", served.context_tokens(),
        " tokens of context; ", o.at_once, " texts at a time take at most ",
        formatted("%.2f GB", 1e-9 * cache_bytes_per_position(stored) * static_cast<double>(o.at_once * capacity)),
        " of keys and values"));
    request_router router(o, &served);
    std::thread generating([&] { generator.run(); });
    auto const join = [&] {
        generator.cut();
        generating.join();
    };
    try {
        int const status = listen_and_serve(o, router,
                                            {[&] { return generator.active() + generator.queued() > 0; },
                                             [&] { generator.close(); }, [&] { generator.cut(); }});
        join();
        return status;
    } catch (...) {
        join();
        throw;
    }
}

int serve_run(serve_options const& o) {
    request_router router(o, nullptr);
    return listen_and_serve(o, router, {});
}

}  // namespace calm::apps
