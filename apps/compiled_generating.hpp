#pragma once
// Compiles how a program loads models of a configuration to generate text. The smallest part of a configuration's work;
// compiled_loading.hpp has more.

#include <string>
#include <type_traits>

#include "calm/runs/detail/load_generator.hpp"
#include "compiled_functions.hpp"
#include "products.hpp"

// The space that a source file is compiled for; the files that CMake generates for NAME@SPACE define it.
#ifndef CALM_SPACE
#define CALM_SPACE space<>
#endif

namespace calm::apps {

// Why this machine lacks the backend, or the GPU with that number; empty if it is available.
template <class Backend> std::string obstacle_to([[maybe_unused]] int number) {
    if constexpr (std::is_same_v<Backend, cuda>)
        return no_device_reason(Backend(), number);
    else
        return "";
}

// Of configuration C, in the space that its source file is compiled for, without what training calls.
template <auto C> static loading generating_of() {
    return {&calm::loaded_generator<C, CALM_SPACE>, obstacle_to<typename CALM_SPACE::backend>, nullptr};
}

}  // namespace calm::apps
