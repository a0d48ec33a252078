#pragma once
// Finds gradients that are complete before backward ends, so that ranks can start to exchange them.

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "calm/nn/param.hpp"

namespace calm::detail {

// Parameters in buckets of neighbours. A dry run of each kind of backward counts how often it touches each gradient. In
// a real backward a bucket is complete once all its parameters reach their counts, checked after each product
// (ctx.after_gradients). Keeps pointers to the parameters, as the optimizer does.
template <class Space> class gradient_hooks {
    using Backend = typename Space::backend;

public:
    using taker = std::function<void(std::size_t bucket)>;

    // bucket_begins: (G + 1) first parameter of each bucket, then the number of parameters.
    gradient_hooks(std::vector<any_parameter<Space>> const& parameters, std::vector<std::size_t> const& bucket_begins) :
        parameters_(parameters), bucket_begins_(bucket_begins), before_(parameters.size()) {}

    // Runs `backward` as a dry run and records its counts for `kind`, 0 or 1.
    template <class Backward> void learn(std::size_t kind, Backward const& backward) {
        note();
        backward();
        expected_[kind].clear();
        for (std::size_t i = 0; i < parameters_.size(); ++i) expected_[kind].push_back(received(i));
    }
    // Runs backward and calls take(bucket) once per bucket, in a fixed order: as soon as it is complete, at the latest
    // after backward. Calls `meanwhile` after each product. Throws errc::usage if a gradient was touched more or less
    // often than in the dry run.
    template <class Backward>
    void run(context<Backend>& ctx, std::size_t kind, Backward const& backward, taker const& take,
             std::function<void()> const& meanwhile) {
        note();
        std::vector<std::size_t> waiting;  // last bucket first: backward runs in the reverse order of forward
        for (std::size_t g = bucket_begins_.size() - 1; g-- > 0;) waiting.push_back(g);
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
            require(
                received(i) == expected_[kind][i], errc::usage,
                "training: expected backward to ask for the gradient of ", parameters_[i].name,
                " as often as in the dry run, ", expected_[kind][i], " times, found ", received(i),
                "; the ranks have summed incomplete gradients. Each micro-batch must use the layers in the same way");
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
    [[nodiscard]] int received(std::size_t i) const { return *parameters_[i].received_gradients - before_[i]; }
    [[nodiscard]] bool is_whole(std::size_t kind, std::size_t g) const {
        for (auto i = bucket_begins_[g]; i < bucket_begins_[g + 1]; ++i)
            if (received(i) < expected_[kind][i]) return false;
        return true;
    }

    std::vector<any_parameter<Space>> const& parameters_;
    std::vector<std::size_t> const& bucket_begins_;
    std::vector<int> before_;       // counts before this backward
    std::vector<int> expected_[2];  // counts per backward, by kind
};

}  // namespace calm::detail
