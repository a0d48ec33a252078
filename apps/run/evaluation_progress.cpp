#include "run/evaluation_progress.hpp"

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "program.hpp"
#include "run/ranks.hpp"
#include "run/report.hpp"
#include "run/terminal_line.hpp"

namespace calm::apps {

namespace {

// One pass over blocks that are evaluated.
class pass {
public:
    pass(index_t blocks, bool is_subset) :
        blocks_(blocks), is_subset_(is_subset), terminal_(terminal_line::is_possible()), next_(terminal_ ? 0.5 : 10) {}
    ~pass() { line_.clear(); }
    pass(pass const&) = delete;
    pass& operator=(pass const&) = delete;

    void done(index_t blocks) {
        double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
        if (seconds < next_ || blocks == blocks_) return;
        double const left = seconds * static_cast<double>(blocks_ - blocks) / static_cast<double>(blocks);
        if (!told_ && left > 600 && !is_subset_) {
            line_.clear();
            log_line("evaluates " + std::to_string(blocks_) + " blocks, which takes about " +
                     duration_text(seconds + left) + "; --positions 2000 would score a random part of them");
            told_ = true;
        }
        auto const line = "evaluated " + std::to_string(blocks) + " of " + std::to_string(blocks_) + " blocks, about " +
                          duration_text(left) + " left";
        if (terminal_)
            line_.show(line);
        else
            log_line(line);
        next_ = seconds + (terminal_ ? 0.3 : 60);
    }

private:
    index_t blocks_;
    bool is_subset_;
    bool terminal_;
    terminal_line line_;
    double next_;  // seconds at which the next report is due
    bool told_ = false;
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace

block_source with_progress(block_source blocks, index_t positions) {
    if (!is_first_rank()) return blocks;
    return [blocks = std::move(blocks), positions, all = std::make_shared<index_t>(0)](block_visitor const& visitor) {
        if (*all == 0) {
            bool const chooses = positions > 0;
            blocks([&](std::span<token_id const> block) {
                ++*all;
                if (chooses) visitor(block);
            });
            if (chooses) return;
        }
        pass now(*all, positions > 0);
        index_t done = 0;
        blocks([&](std::span<token_id const> block) {
            visitor(block);
            now.done(++done);
        });
    };
}

}  // namespace calm::apps
