// What clients of `serve` get if generation fails, with a batch that fails on purpose.
#include "serve/text_generator.hpp"

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "calm/text/tokenizer.hpp"
#include "serve/completion_answer.hpp"
#include "serve/completion_request.hpp"
#include "serve/service_metrics.hpp"
#include "support/happens.hpp"
#include "support/sentences.hpp"

namespace {

using namespace calm;
using namespace calm::apps;
using calm::test::happens;
using calm::test::has;

// Two texts at a time, each a token "a" per step. Prompts with the token "f" fail, by `failing`: where they begin, or
// in the step, with all others. Prompts with the token "p" are never complete.
class failing_batch final : public loaded_text_batch {
public:
    enum class failing { at_its_begin, in_a_step };
    explicit failing_batch(failing when) : when_(when) {}

    [[nodiscard]] index_t free_slots() const override { return std::count(slots_.begin(), slots_.end(), std::nullopt); }
    [[nodiscard]] bool empty() const override { return free_slots() == std::ssize(slots_); }
    index_t begin(std::span<token_id const> prompt, any_generation_settings const& settings) override {
        bool const fails = std::find(prompt.begin(), prompt.end(), 'f') != prompt.end();
        require(!fails || when_ != failing::at_its_begin, errc::non_finite, "the prompt fails");
        auto const slot = std::find(slots_.begin(), slots_.end(), std::nullopt) - slots_.begin();
        bool const waits = std::find(prompt.begin(), prompt.end(), 'p') != prompt.end();
        slots_[static_cast<std::size_t>(slot)] = text{settings.max_tokens, fails, waits};
        return slot;
    }
    void end(index_t slot) override { slots_[static_cast<std::size_t>(slot)].reset(); }
    generation_result& result(index_t) override { return result_; }
    void step(on_patch const& report) override {
        for (auto const& one : slots_) require(!one || !one->fails, errc::non_finite, "the step fails");
        for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
            auto& one = slots_[slot];
            if (!one || one->waits) continue;
            token_id const fresh = 'a';
            bool const last = --one->tokens == 0;
            if (!report(static_cast<index_t>(slot), {{&fresh, 1}, {1, false}, last})) one.reset();
        }
    }

private:
    struct text {
        index_t tokens;  // left to generate
        bool fails;
        bool waits;
        bool operator==(text const&) const = default;
    };

    failing when_;
    std::vector<std::optional<text>> slots_{std::nullopt, std::nullopt};
    generation_result result_;
};

// Keeps what a client would receive.
class kept_answer final : public http_answer {
public:
    void send(int status, std::string, std::string body, std::vector<header>) override {
        status_ = status;
        text_ += body;
    }
    void begin_stream(std::string) override { status_ = 200; }
    void write(std::string chunk) override { text_ += chunk; }
    void finish() override { ++finished_; }
    [[nodiscard]] bool gone() const override { return gone_; }

    std::atomic<bool> gone_ = false;
    int status_ = 0;
    int finished_ = 0;
    std::string text_;
};

struct service {
    explicit service(failing_batch::failing when) : batch(when) {}

    std::shared_ptr<kept_answer> ask(std::string const& prompt, bool stream) {
        auto kept = std::make_shared<kept_answer>();
        std::vector<std::vector<token_id>> const prompts{{prompt.begin(), prompt.end()}};
        completion_request request;
        request.stream = stream;
        auto const answer = std::make_shared<completion_answer>(request, prompts, 1, "tried", letters, metrics, kept);
        answer->begin();
        any_generation_settings settings;
        settings.max_tokens = 3;
        generator.add({{answer, 0, prompts.front(), settings}});
        return kept;
    }

    failing_batch batch;
    tokenizer letters;
    service_metrics metrics;
    text_generator generator{batch, 100};
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_prompt_that_fails_disturbs_no_other) {
    service tried(failing_batch::failing::at_its_begin);
    auto const before = tried.ask("b", false), failed = tried.ask("f", false), after = tried.ask("c", true);
    tried.generator.close();
    tried.generator.run();
    BOOST_TEST(before->status_ == 200);
    BOOST_TEST(has(before->text_, "\"text\":\"aaa\""), before->text_);
    BOOST_TEST(failed->status_ == 500);
    BOOST_TEST(has(failed->text_, "the prompt fails"), failed->text_);
    BOOST_TEST(after->text_.ends_with("data: [DONE]\n\n"), after->text_);
}

// Each client gets one error: as an answer, or as the last event of a stream. Texts that wait are generated then.
BOOST_AUTO_TEST_CASE(a_failing_step_is_reported_once_to_each_client) {
    service tried(failing_batch::failing::in_a_step);
    auto const whole = tried.ask("b", false), stream = tried.ask("f", true), waits = tried.ask("c", false);
    tried.generator.close();
    tried.generator.run();
    BOOST_TEST(whole->status_ == 500);
    BOOST_TEST(has(whole->text_, "the step fails"), whole->text_);
    BOOST_TEST(stream->status_ == 200);
    BOOST_TEST(stream->finished_ == 1);
    BOOST_TEST(stream->text_.starts_with("data: {\"error\":{\"message\":"), stream->text_);
    BOOST_TEST(has(stream->text_, "the step fails"), stream->text_);
    BOOST_TEST(stream->text_.find("data:", 1) == std::string::npos, stream->text_);
    BOOST_TEST(waits->status_ == 200);
    BOOST_TEST(has(waits->text_, "\"text\":\"aaa\""), waits->text_);
}

// Otherwise run() would not return.
BOOST_AUTO_TEST_CASE(a_text_whose_client_has_gone_ends_though_its_prompt_is_not_complete) {
    for (bool const stream : {true, false}) {
        service tried(failing_batch::failing::in_a_step);
        auto const gone = tried.ask("p", stream), other = tried.ask("b", stream), waits = tried.ask("c", stream);
        std::thread generating([&] { tried.generator.run(); });
        bool const begun = happens([&] { return tried.generator.queued() == 0; });
        gone->gone_ = true;
        tried.generator.close();
        generating.join();
        BOOST_TEST(begun);
        BOOST_TEST(!has(gone->text_, "\"text\":\"a"), gone->text_);
        for (auto const& one : {other, waits}) BOOST_TEST(has(one->text_, "\"finish_reason\":\"length\""), one->text_);
    }
}
