#include "serve/completion_answer.hpp"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "calm/train/detail/throughput.hpp"
#include "run/report.hpp"
#include "serve/api_error.hpp"
#include "strict_json.hpp"

namespace calm::apps {

namespace {

constexpr char const* event_stream = "text/event-stream; charset=utf-8";

std::string random_completion_id() {
    std::random_device random;
    return formatted("cmpl-%08x%08x%08x", random(), random(), random());
}

std::int64_t unix_seconds_now() {
    using namespace std::chrono;
    return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

nlohmann::ordered_json patch_json(std::size_t tokens, sampling_cost const& took) {
    return {{"tokens", tokens}, {"draws", took.draws}, {"capped", took.capped}};
}

}  // namespace

completion_answer::completion_answer(completion_request request, std::vector<std::vector<token_id>> const& prompts,
                                     std::uint64_t seed, std::string model, tokenizer const& tokenizer,
                                     service_metrics& metrics, std::shared_ptr<http_answer> answer) :
    request_(std::move(request)),
    seed_(seed), model_(std::move(model)), id_(random_completion_id()), created_(unix_seconds_now()),
    tokenizer_(tokenizer), metrics_(metrics), answer_(std::move(answer)), stops_(request_.stop),
    begun_(steady_seconds()) {
    for (auto const& prompt : prompts) {
        prompt_tokens_ += std::ssize(prompt);
        std::string echoed;
        if (request_.echo)
            for (token_id const id : prompt) echoed += tokenizer_.bytes(id);
        for (index_t i = 0; i < request_.n; ++i) texts_.push_back({stopped_text(stops_), echoed, {}, {}});
    }
}

void completion_answer::begin() {
    metrics_.prompt_tokens += static_cast<std::uint64_t>(prompt_tokens_);
    if (request_.stream) answer_->begin_stream(event_stream);
    if (request_.max_tokens == 0)
        for (std::size_t i = 0; i < texts_.size(); ++i) end(i, false);
}

bool completion_answer::take(std::size_t text, generated_patch const& patch) {
    auto& state = texts_[text];
    if (!std::exchange(any_token_, true)) metrics_.first_token.add(steady_seconds() - begun_);
    std::size_t used = 0;
    std::string piece;
    for (token_id const id : patch.fresh) {
        ++used;
        piece += state.ending.push(tokenizer_.bytes(id));
        if (state.ending.stop() != nullptr) break;
    }
    tokens_ += static_cast<index_t>(used);
    ++patches_;
    draws_ += patch.took.draws;
    metrics_.tokens += used;
    ++metrics_.patches;
    metrics_.draws += static_cast<std::uint64_t>(patch.took.draws);
    generated_patch const shown{patch.fresh.first(used), patch.took, patch.last};
    if (request_.stream) {
        piece.insert(0, std::exchange(state.text, {}));
        if (!piece.empty() || request_.patches) send_text(text, std::move(piece), &shown, nullptr);
    } else {
        state.text += piece;
        if (request_.patches) state.patches.emplace_back(used, patch.took);
    }
    return state.ending.stop() == nullptr;
}

void completion_answer::end(std::size_t text, bool at_end_id) {
    auto& state = texts_[text];
    state.finished = at_end_id || state.ending.stop() != nullptr ? "stop" : "length";
    auto const rest = state.ending.flush();
    if (request_.stream)
        send_text(text, std::exchange(state.text, {}) + rest, nullptr, state.finished.c_str());
    else
        state.text += rest;
    ++metrics_.texts;
    finish_if_all_ended();
}

void completion_answer::fail(std::size_t, std::string const& message) {
    if (std::exchange(failed_, true)) return;
    metrics_.answered(completions_path, 500);
    api_error const wrong{500, message, "", ""};
    if (!request_.stream) return answer_->send(500, "application/json", wrong.json());
    answer_->write("data: " + wrong.json() + "\n\n");
    answer_->finish();
}

nlohmann::ordered_json completion_answer::head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_}};
}

nlohmann::ordered_json completion_answer::usage() const {
    return {{"prompt_tokens", prompt_tokens_},
            {"completion_tokens", tokens_},
            {"total_tokens", prompt_tokens_ + tokens_},
            {"patches", patches_},
            {"draws", draws_}};
}

nlohmann::ordered_json completion_answer::choice(std::size_t text) const {
    auto const& state = texts_[text];
    nlohmann::ordered_json one{
        {"text", state.text}, {"index", text}, {"logprobs", nullptr}, {"finish_reason", state.finished}};
    if (request_.patches) {
        one["patches"] = nlohmann::ordered_json::array();
        for (auto const& [tokens, took] : state.patches) one["patches"].push_back(patch_json(tokens, took));
    }
    return one;
}

void completion_answer::send_event(nlohmann::ordered_json const& event) {
    answer_->write("data: " + json_line(event) + "\n\n");
}

void completion_answer::send_text(std::size_t text, std::string piece, generated_patch const* patch,
                                  char const* reason) {
    if (failed_) return;
    nlohmann::ordered_json one{{"text", std::move(piece)},
                               {"index", text},
                               {"logprobs", nullptr},
                               {"finish_reason", reason != nullptr ? nlohmann::ordered_json(reason) : nullptr}};
    if (request_.patches && patch != nullptr) one["patch"] = patch_json(patch->fresh.size(), patch->took);
    auto event = head();
    event["choices"] = nlohmann::ordered_json::array({std::move(one)});
    if (request_.include_usage) event["usage"] = nullptr;
    send_event(event);
}

void completion_answer::finish_if_all_ended() {
    if (++ended_ < texts_.size() || failed_ || answer_->gone()) return;
    metrics_.answered(completions_path, 200);
    metrics_.request.add(steady_seconds() - begun_);
    auto last = head();
    last["choices"] = nlohmann::ordered_json::array();
    if (request_.stream) {
        last["usage"] = usage();
        if (request_.include_usage) send_event(last);
        answer_->write("data: [DONE]\n\n");
        return answer_->finish();
    }
    for (std::size_t i = 0; i < texts_.size(); ++i) last["choices"].push_back(choice(i));
    last["usage"] = usage();
    last["seed"] = seed_;
    answer_->send(200, "application/json", json_line(last));
}

}  // namespace calm::apps
