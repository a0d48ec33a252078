#pragma once
// Several wrong things of one file, reported together.

#include <cstddef>
#include <string>
#include <utility>

#include "calm/tensor/error.hpp"

namespace calm {

// Collects sentences. However many a file deserves, the first twenty are kept and the others counted.
class problem_list {
public:
    // One more problem, a sentence.
    void add(std::string sentence) {
        if (++count_ == 1) first_ = sentence;
        if (count_ <= most) lines_ += "\n  - " + std::move(sentence);
    }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }  // whether none was added
    // Throws errc::model_file with all of them, if there are any.
    void throw_if_any(std::string const& path) const {
        if (count_ == 1) throw error(errc::model_file, path, "", first_);
        if (count_ > 1)
            throw error(errc::model_file, path, "",
                        std::to_string(count_) + " problems" + lines_ +
                            (count_ > most ? "\n  - and " + std::to_string(count_ - most) + " more" : ""));
    }

private:
    static constexpr std::size_t most = 20;
    std::size_t count_ = 0;
    std::string first_;
    std::string lines_;
};

}  // namespace calm
