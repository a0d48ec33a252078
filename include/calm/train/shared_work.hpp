#pragma once
// What a rank of several does of a run of training.

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "calm/ranks/collective.hpp"
#include "calm/train/parameter_shares.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/training_callbacks.hpp"

namespace calm::detail {

// Several ranks that do a run together. Each does a part of a step's micro-batches, which is a subtree of the tree that
// their gradients add up in, and updates a part of the parameters; the bits are those of one rank.
struct shared_work {
    collective* ranks = nullptr;                          // this rank's end, or null: there is one
    std::function<void(progress const&)> pass_over = {};  // takes from the text a micro-batch that another rank does

    [[nodiscard]] int count() const { return ranks != nullptr ? ranks->ranks() : 1; }
    [[nodiscard]] int rank() const { return ranks != nullptr ? ranks->rank() : 0; }
    // The micro-batches of a step that a rank does. Throws errc::usage where they are no subtree.
    [[nodiscard]] index_t micro_batches(index_t of_a_step) const {
        index_t const each = of_a_step / count();
        require(count() == 1 || (each * count() == of_a_step && std::has_single_bit(static_cast<std::uint64_t>(each))),
                errc::usage, "training: expected a step of ", count(), " times 1, 2, 4, ... micro-batches for ",
                count(), " ranks, found ", of_a_step, " (--accumulation)");
        return each;
    }
};

// The ranks are at work as long as it lives.
class working {
public:
    explicit working(collective* ranks) : ranks_(ranks) {
        if (ranks_ != nullptr) ranks_->at_work = true;
    }
    ~working() {
        if (ranks_ != nullptr) ranks_->at_work = false;
    }
    working(working const&) = delete;
    working& operator=(working const&) = delete;

private:
    collective* ranks_;
};

// The shares of several ranks, or null. Throws errc::usage on a device.
template <class Space>
std::unique_ptr<parameter_shares<Space>> shares_of(std::vector<any_parameter<Space>> const& parameters,
                                                   shared_work const& work) {
    if (work.count() == 1) return nullptr;
    require(host_memory<typename Space::backend>, errc::usage,
            "training: expected one rank on a device, found several: ranks train on the cpu");
    return std::make_unique<parameter_shares<Space>>(parameters, *work.ranks);
}

// The numbers of a run that its ranks begin with alike.
inline std::vector<std::uint64_t> words_of(std::uint64_t seed, training_state const& state, training_recipe const& r,
                                           index_t tokens) {
    auto const word = [](auto number) { return std::bit_cast<std::uint64_t>(number); };
    return {
        seed,          word(state.step),     word(state.updates), word(state.skipped), word(state.first_phase_steps),
        word(r.steps), word(r.accumulation), word(r.seconds),     word(r.rate),        word(r.warmup),
        word(tokens)};
}

}  // namespace calm::detail
