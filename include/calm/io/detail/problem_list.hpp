#pragma once
// Collects several problems of one file, to report them together.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"

namespace calm::detail {

// Collects problems. The first twenty are kept, further ones only counted.
class problem_list {
public:
    // Adds a problem: a message and, if known, the place in the file.
    void add(std::string sentence, std::string place = "") {
        if (++count_ <= most) kept_.push_back({std::move(place), std::move(sentence)});
    }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }  // whether none was added
    // Throws errc::model_file with all problems, if there are any.
    void throw_if_any(std::string const& path) const {
        if (count_ == 0) return;
        if (count_ == 1) throw error(errc::model_file, path, kept_.front().place, kept_.front().sentence);
        std::vector<std::string> lines;
        for (auto const& [place, sentence] : kept_)
            lines.push_back("  - " + (place.empty() ? "" : place + ": ") + sentence);
        if (count_ > most) lines.push_back("  - and " + std::to_string(count_ - most) + " more");
        throw error(errc::model_file, path, "", std::to_string(count_) + " problems", lines);
    }

private:
    struct problem {
        std::string place;
        std::string sentence;
    };
    static constexpr std::size_t most = 20;
    std::size_t count_ = 0;
    std::vector<problem> kept_;
};

}  // namespace calm::detail
