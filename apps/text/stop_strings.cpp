#include "text/stop_strings.hpp"

#include <algorithm>
#include <utility>

namespace calm::apps {

namespace {

// How many bytes of a string match after one more byte, if `matched` (not all) matched before it.
std::size_t matched_after(std::string const& text, std::span<std::size_t const> shorter, std::size_t matched,
                          char byte) {
    while (matched > 0 && text[matched] != byte) matched = shorter[matched - 1];
    return matched + (text[matched] == byte ? 1 : 0);
}

}  // namespace

stop_strings::stop_strings(std::vector<std::string> const& strings) {
    for (auto const& text : strings) {
        require(!text.empty(), errc::usage, "a stop string is empty: expected at least one character");
        pattern one{text, {0}};
        for (std::size_t at = 1; at < text.size(); ++at)
            one.shorter.push_back(matched_after(text, one.shorter, one.shorter.back(), text[at]));
        patterns_.push_back(std::move(one));
    }
}

std::string const* stopped_text::completed_by(char byte) {
    std::string const* longest = nullptr;
    for (std::size_t i = 0; i < matched_.size(); ++i) {
        auto const& [text, shorter] = strings_->patterns_[i];
        matched_[i] = matched_after(text, shorter, matched_[i], byte);
        if (matched_[i] == text.size() && (longest == nullptr || longest->size() < text.size())) longest = &text;
    }
    return longest;
}

std::string stopped_text::push(std::string_view bytes) {
    if (stop_ != nullptr) return {};
    for (char const byte : bytes) {
        held_ += byte;
        stop_ = completed_by(byte);
        if (stop_ == nullptr) continue;
        held_.resize(held_.size() - stop_->size());
        return std::exchange(held_, {});
    }
    std::size_t const kept = matched_.empty() ? 0 : *std::max_element(matched_.begin(), matched_.end());
    auto const certain = held_.size() - kept;
    std::string text = held_.substr(0, certain);
    held_.erase(0, certain);
    return text;
}

std::string stopped_text::flush() {
    return std::exchange(held_, {});
}

bool stop_watch::continues(std::size_t text, std::span<token_id const> fresh) {
    if (texts_.empty()) return true;
    for (token_id const id : fresh) static_cast<void>(texts_[text].push(tokenizer_.bytes(id)));
    return texts_[text].stop() == nullptr;
}

shown_text end_at_stop(generation_result& made, tokenizer const& tokenizer, stop_strings const& strings) {
    stopped_text text(strings);
    shown_text shown;
    for (std::size_t i = 0; i < made.tokens.size(); ++i) {
        shown.text += text.push(tokenizer.bytes(made.tokens[i]));
        if (text.stop() == nullptr) continue;
        made.tokens.resize(i + 1);
        made.stopped_at_eos = false;
        break;
    }
    shown.text += text.flush();
    shown.stop = text.stop();
    return shown;
}

}  // namespace calm::apps
