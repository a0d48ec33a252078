#pragma once
// Generates the texts of all requests on one thread, together in one batch. Texts wait in a queue, and join and leave
// the batch between two patches.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "calm/base/token.hpp"
#include "calm/runs/detail/loaded_model.hpp"

namespace calm::apps {

// Receives texts, on the generating thread. Its functions must not block or throw.
class text_receiver {
public:
    text_receiver() = default;
    text_receiver(text_receiver const&) = delete;
    text_receiver& operator=(text_receiver const&) = delete;
    virtual ~text_receiver() = default;

    // Whether somebody still waits for its texts.
    [[nodiscard]] virtual bool wanted() const = 0;
    // The next patch of text number `text`; false ends the text.
    virtual bool take(std::size_t text, generated_patch const& patch) = 0;
    // After the last patch, or when the text was cut.
    virtual void end(std::size_t text, bool at_end_id) = 0;
    // Generation failed; no more calls follow for this text.
    virtual void fail(std::size_t text, std::string const& message) = 0;
};

// A text to generate.
struct text_order {
    std::shared_ptr<text_receiver> to;
    std::size_t number = 0;  // of the text, for the receiver
    std::vector<token_id> prompt;
    any_generation_settings settings;
};

class text_generator {
public:
    // The batch outlives it. At most `queue` texts wait.
    text_generator(loaded_text_batch& batch, std::size_t queue) :
        batch_(batch), most_queued_(queue), under_way_(static_cast<std::size_t>(batch.free_slots())) {}

    // Generates until close() and the last text. Call it on a thread of its own.
    void run();

    // Whether so many texts can be added; only one thread may add.
    [[nodiscard]] bool has_room(std::size_t texts) const;
    // Adds texts to the queue.
    void add(std::vector<text_order> orders);
    // No more texts are added; run() ends after the last one.
    void close();
    // As close(), and ends all texts after the patch that they are at.
    void cut();

    [[nodiscard]] std::size_t most_queued() const { return most_queued_; }
    [[nodiscard]] std::size_t queued() const;
    [[nodiscard]] std::size_t active() const;

private:
    // Waits for work; moves texts from the queue that can begin now. False at the end.
    bool next_orders(std::vector<text_order>& orders);
    void begin(text_order order);
    void step();
    void fail_all(std::string const& message);

    loaded_text_batch& batch_;
    std::size_t most_queued_;
    std::vector<text_order> under_way_;  // by slot of the batch; without receiver where no text is

    mutable std::mutex mutex_;  // for what follows
    std::condition_variable change_;
    std::deque<text_order> queue_;
    std::size_t active_ = 0;
    bool closed_ = false;
    bool cut_ = false;
};

}  // namespace calm::apps
