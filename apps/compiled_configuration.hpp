#pragma once
// Compiles a configuration: a CALM or an autoregressive model. Only the source files in configs/ include it, and
// sources of your own that -DCALM_CONFIGS names.

#include <string>
#include <type_traits>

#include "calm/model/heads.hpp"
#include "compiled_loading.hpp"
#include "compiled_training.hpp"
#include "registry.hpp"

namespace calm::apps {

// Registers configuration C under a name, for the space that its source file is compiled for. The source files in
// configs/ call it at program start.
template <model_configuration auto C> static bool compile_configuration(std::string const& name, recipes defaults) {
    add_head<std::remove_cvref_t<decltype(C.head)>>();
    compiled_functions const work{loading_of<C>(), training_of<C>()};
    work.complete_objective(defaults.calm.objective);
    return register_configuration(name, with_any_head(C), defaults, name_of_space<CALM_SPACE>, work);
}
template <autoregressive_configuration C>
static bool compile_configuration(std::string const& name, recipes const& defaults) {
    return register_configuration(name, C, defaults, name_of_space<CALM_SPACE>, {loading_of<C>(), training_of<C>()});
}

}  // namespace calm::apps
