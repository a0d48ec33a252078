#pragma once
// Cuts text by several patterns, one after another.

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "calm/text/detail/pretokenizer.hpp"

namespace calm::detail {

// Cuts text that comes in parts as if it came whole: each pattern cuts the pieces of the pattern before it.
class piece_cutter {
public:
    // At least one pattern; they must outlive it.
    explicit piece_cutter(std::span<std::shared_ptr<pretokenizer const> const> patterns) {
        for (auto const& pattern : patterns) streams_.emplace_back(*pattern);
    }

    // Calls `piece` for the pieces that end in the text so far. Throws as piece_stream::push.
    void push(std::string_view part, text_callback piece) { push_at(0, part, piece); }

    // Ends the last piece: text that follows is cut apart from it. Throws as push.
    void end(text_callback piece) { end_at(0, piece); }

    // Ends the text; another may then begin. Throws as push.
    void finish(text_callback piece) {
        end(piece);
        for (auto& stream : streams_) stream.renew();
    }

private:
    // Passes the parts of pattern i to the next one.
    auto next(std::size_t i, text_callback piece) {
        return [this, i, piece](std::string_view text, bool ends) {
            push_at(i + 1, text, piece);
            if (ends) end_at(i + 1, piece);
        };
    }
    void push_at(std::size_t i, std::string_view part, text_callback piece) {
        if (i + 1 == streams_.size())
            streams_[i].push(part, piece);
        else
            streams_[i].pass(part, next(i, piece));
    }
    void end_at(std::size_t i, text_callback piece) {
        if (i + 1 == streams_.size()) {
            streams_[i].end([&](std::string_view text, bool) { piece(text); });
        } else {
            streams_[i].end(next(i, piece));
            end_at(i + 1, piece);
        }
    }

    std::vector<piece_stream> streams_;
};

}  // namespace calm::detail
