#pragma once
// Parameters as a file holds them.

#include <span>
#include <type_traits>
#include <vector>

#include "calm/io/detail/parameters_on_host.hpp"
#include "calm/io/detail/stored_tensor.hpp"
#include "calm/nn/param.hpp"
#include "calm/tensor/core/copy.hpp"

namespace calm {

// Calls write(std::span<stored_tensor const>) with parameters on the host, each under its name. Their bytes are valid
// during the call. Throws errc::non_finite if a value is not finite.
template <class Space, class Write>
requires std::is_same_v<typename Space::backend, cpu>
void with_stored(std::vector<any_parameter<Space>> const& parameters, Write const& write) {
    std::vector<stored_tensor> tensors;
    tensors.reserve(parameters.size());
    for (auto const& p : parameters) {
        with_values(p, [&]<class T, class B>(vector_view<T, dyn, B> const& values) {
            tensors.push_back(to_store(p.name, p.shape, detail::on_this_side(vector_view<T const, dyn, B>(values))));
        });
        require_finite(tensors.back());
    }
    write(std::span<stored_tensor const>(tensors));
}
// Parameters on any device, which are copied to the host first.
template <class Backend, class Space, class Write>
void with_stored(context<Backend> const& ctx, std::vector<any_parameter<Space>> const& parameters, Write const& write) {
    if constexpr (device_memory<Backend>) {
        detail::parameters_on_host<Space> const here(parameters);
        copy_parameters(ctx, here.all(), parameters);
        with_stored(here.all(), write);
    } else {
        with_stored(parameters, write);
    }
}

}  // namespace calm
