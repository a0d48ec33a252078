#pragma once
// The answer to one completion request, whole or as server-sent events.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "calm/sample/stop_strings.hpp"
#include "calm/text/tokenizer.hpp"
#include "serve/completion_request.hpp"
#include "serve/http_server.hpp"
#include "serve/service_metrics.hpp"
#include "serve/text_generator.hpp"

namespace calm::apps {

inline constexpr char const* completions_path = "/v1/completions";

// Receives the texts of a request and sends them to its client. The tokenizer and the metrics outlive it.
class completion_answer final : public text_receiver {
public:
    // `prompts` has the tokens of every prompt; `seed` is the request's or a random one; `model` is the server's name
    // of the model.
    completion_answer(completion_request request, std::vector<std::vector<token_id>> const& prompts, std::uint64_t seed,
                      std::string model, tokenizer const& tokenizer, service_metrics& metrics,
                      std::shared_ptr<http_answer> answer);

    // Begins a streamed answer, and answers a request of no tokens at once. Call it once, before any text.
    void begin();

    [[nodiscard]] bool wanted() const override { return !failed_ && !answer_->gone(); }
    bool take(std::size_t text, generated_patch const& patch) override;
    void end(std::size_t text, bool at_end_id) override;
    void fail(std::size_t text, std::string const& message) override;

    // Number of texts: prompts times n.
    [[nodiscard]] std::size_t texts() const { return texts_.size(); }

private:
    struct text_state {
        stopped_text ending;
        std::string text;      // so far; of a stream, the echoed prompt until the first event
        std::string finished;  // finish_reason, or empty
        std::vector<std::pair<std::size_t, sampling_cost>> patches;  // tokens and cost, if asked for and not streamed
    };

    [[nodiscard]] nlohmann::ordered_json choice(std::size_t text) const;
    [[nodiscard]] nlohmann::ordered_json usage() const;
    [[nodiscard]] nlohmann::ordered_json head() const;
    void send_event(nlohmann::ordered_json const& event);
    void send_text(std::size_t text, std::string piece, generated_patch const* patch, char const* reason);
    void finish_if_all_ended();

    completion_request request_;
    std::uint64_t seed_;
    std::string model_, id_;
    std::int64_t created_;
    tokenizer const& tokenizer_;
    service_metrics& metrics_;
    std::shared_ptr<http_answer> answer_;
    stop_strings stops_;
    std::vector<text_state> texts_;
    double begun_;
    bool any_token_ = false;
    bool failed_ = false;
    std::size_t ended_ = 0;
    index_t prompt_tokens_ = 0, tokens_ = 0, patches_ = 0, draws_ = 0;
};

}  // namespace calm::apps
