#pragma once
// Forward and backward of the micro-batches of a run, which a device is asked for at once after the first ones
// (tensor/graph.hpp).

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "calm/nn/param.hpp"
#include "calm/tensor/graph.hpp"

namespace calm::detail {

// It keeps the addresses of the parameters, as the optimizer does.
template <class Space> class repeated_backward {
public:
    using Backend = typename Space::backend;

    explicit repeated_backward(std::vector<any_parameter<Space>> const& parameters) {
        for (auto const& p : parameters) parameters_.push_back({p.received_gradient, false});
    }

    // work() adds gradients to those of the parameters, and what else it does is for the executor alone. `of`: as
    // repeated_work has it.
    template <class Work>
    void operator()(context<Backend>& ctx, std::initializer_list<std::uint64_t> of, Work const& work) {
        bool const is_recorded = work_(ctx, of, work);
        for (auto& [received, receives] : parameters_) {
            if (is_recorded)
                *received = *received || receives;
            else
                receives = *received;
        }
    }

private:
    struct parameter {
        bool* received;  // a gradient since the last update
        bool receives;   // one from this work
    };
    std::vector<parameter> parameters_;
    repeated_work<Backend> work_;
};

}  // namespace calm::detail
