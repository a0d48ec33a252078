#pragma once
// Which gradients are whole before backward has ended, so that ranks add them up meanwhile.

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "calm/nn/param.hpp"

namespace calm::detail {

// Parameters in groups of neighbours. How often backward asks for the gradient of each is learned from one that was
// rehearsed, of each kind that there is; a group whose parameters were asked for as often is whole when the next
// product says so (ctx.after_gradients). It keeps the addresses of the parameters, as the optimizer does.
template <class Space> class gradient_watch {
    using Backend = typename Space::backend;

public:
    using taker = std::function<void(std::size_t group)>;

    // group_begins: (G + 1) the first parameter of each group, and the number of all.
    gradient_watch(std::vector<any_parameter<Space>> const& parameters, std::vector<std::size_t> const& group_begins) :
        parameters_(parameters), group_begins_(group_begins), before_(parameters.size()) {}

    // Rehearses a backward of a kind, 0 or 1.
    template <class Backward> void learn(std::size_t kind, Backward const& backward) {
        note();
        backward();
        asked_[kind].clear();
        for (std::size_t i = 0; i < parameters_.size(); ++i) asked_[kind].push_back(asked(i));
    }
    // Runs one, and hands over each group once, in the same order each time: as soon as it is whole, or behind it;
    // after each product `meanwhile` is called. Throws errc::usage where backward asked for a gradient again that was
    // whole.
    template <class Backward>
    void run(context<Backend>& ctx, std::size_t kind, Backward const& backward, taker const& take,
             std::function<void()> const& meanwhile) {
        note();
        std::vector<std::size_t> waiting;  // the last first: backward begins with what forward ends with
        for (std::size_t g = group_begins_.size() - 1; g-- > 0;) waiting.push_back(g);
        {
            hearing const scope{ctx};
            ctx.after_gradients = [&] {
                std::erase_if(waiting, [&](std::size_t g) {
                    bool const whole = is_whole(kind, g);
                    if (whole) take(g);
                    return whole;
                });
                meanwhile();
            };
            backward();
        }
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            require(asked(i) == asked_[kind][i], errc::usage, "training: expected backward to ask for the gradient of ",
                    parameters_[i].name, " as often as in the rehearsal, ", asked_[kind][i], " times, found ", asked(i),
                    "; ranks have added up what was not whole. Its layers must ask alike in each micro-batch");
        for (auto const g : waiting) take(g);
    }

private:
    struct hearing {
        context<Backend>& ctx;
        explicit hearing(context<Backend>& of) : ctx(of) {}
        hearing(hearing const&) = delete;
        hearing& operator=(hearing const&) = delete;
        ~hearing() { ctx.after_gradients = nullptr; }
    };

    void note() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) before_[i] = *parameters_[i].received_gradients;
    }
    [[nodiscard]] int asked(std::size_t i) const { return *parameters_[i].received_gradients - before_[i]; }
    [[nodiscard]] bool is_whole(std::size_t kind, std::size_t g) const {
        for (auto i = group_begins_[g]; i < group_begins_[g + 1]; ++i)
            if (asked(i) < asked_[kind][i]) return false;
        return true;
    }

    std::vector<any_parameter<Space>> const& parameters_;
    std::vector<std::size_t> const& group_begins_;
    std::vector<int> before_;    // asked for before this backward
    std::vector<int> asked_[2];  // in a backward, of each kind
};

}  // namespace calm::detail
