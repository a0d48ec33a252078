#pragma once
// Parameters of a device in memory of the host, where files are read and written.

#include <algorithm>
#include <vector>

#include "calm/nn/param.hpp"
#include "calm/tensor/core/copy.hpp"

namespace calm::detail {

// Host copies of the parameters of a device's model: equal names, shapes and types in separate memory, all zero.
template <class Space> class parameters_on_host {
public:
    using parameter = any_parameter<space<cpu, typename Space::scalar, typename Space::weights>>;

    explicit parameters_on_host(std::vector<any_parameter<Space>> const& parameters) {
        for (auto const& p : parameters)
            with_values(p, [&]<class T, class B>(vector_view<T, dyn, B> const& there) {
                auto const value = memory_.take<T>(there.extents());
                std::fill_n(value.data(), value.size(), T{});
                all_.push_back({p.name,
                                p.shape,
                                value,
                                {nullptr, there.extents()},
                                p.starts,
                                p.decays,
                                p.is_hidden,
                                nullptr,
                                nullptr,
                                nullptr});
            });
    }
    [[nodiscard]] std::vector<parameter> const& all() const { return all_; }

private:
    arena<> memory_{"values on the host"};
    std::vector<parameter> all_;
};

}  // namespace calm::detail
