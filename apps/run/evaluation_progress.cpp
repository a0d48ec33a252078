#include "run/evaluation_progress.hpp"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "calm/base/detail/number_text.hpp"
#include "program.hpp"
#include "run/ranks.hpp"
#include "run/report.hpp"

namespace calm::apps {

namespace {

// One pass over blocks that are evaluated.
class pass {
public:
    pass(index_t blocks, bool is_subset) :
        blocks_(blocks), is_subset_(is_subset), terminal_(overwrites_lines()), next_(terminal_ ? 0.5 : 10) {}
    ~pass() { clear(); }
    pass(pass const&) = delete;
    pass& operator=(pass const&) = delete;

    void done(index_t blocks) {
        double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
        if (seconds < next_ || blocks == blocks_) return;
        double const left = seconds * static_cast<double>(blocks_ - blocks) / static_cast<double>(blocks);
        if (!told_ && left > 600 && !is_subset_) {
            clear();
            log_line("evaluates " + std::to_string(blocks_) + " blocks, which takes about " +
                     duration_text(seconds + left) + "; --positions 2000 would score a random part of them");
            told_ = true;
        }
        auto const line = "evaluated " + std::to_string(blocks) + " of " + std::to_string(blocks_) + " blocks, about " +
                          duration_text(left) + " left";
        if (terminal_) {
            std::fprintf(stderr, "\r%-*s", static_cast<int>(width_), line.c_str());
            std::fflush(stderr);
            width_ = line.size();
        } else {
            log_line(line);
        }
        next_ = seconds + (terminal_ ? 0.3 : 60);
    }

private:
    void clear() {
        if (width_ > 0) std::fprintf(stderr, "\r%-*s\r", static_cast<int>(width_), "");
        width_ = 0;
    }

    index_t blocks_;
    bool is_subset_;
    bool terminal_;
    double next_;  // seconds at which the next report is due
    bool told_ = false;
    std::size_t width_ = 0;  // of the text on the terminal's line
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
