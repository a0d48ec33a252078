#pragma once
// The configurations that a program can use: those compiled into it, each registered by a source file in configs/, and
// any other sizes, which are compiled when they are first used (plugin/). Programs find a configuration by its name or
// by the sizes of a stored model, and call it through plain functions.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "calm/io/stored_model.hpp"
#include "command/options.hpp"
#include "compiled_functions.hpp"

namespace calm::apps {

// Training defaults where the command line gives no value.
struct recipes {
    autoencoder_recipe autoencoder = {};
    calm_recipe<any_objective> calm = {};
    autoregressive_recipe autoregressive = {};
};

// What a program needs of a configuration. One on demand compiles sooner if it need not train or evaluate.
enum class needed_work { all, without_training, generation };

// A configuration of a CALM or of an autoregressive model. `work` is keyed by device name, with "-bf16" appended if
// weights are held in bf16. What is not part of the program comes from on(), with training once that is needed.
struct entry {
    std::string name;
    std::variant<configuration<any_head>, autoregressive_configuration> sizes = {};
    recipes defaults = {};
    mutable std::map<std::string, compiled_functions> work = {};
    bool on_demand = false;  // not compiled into the program

    // The work for a device, with weights held in fp32 or bf16; compiles what is needed and not part of the program.
    // Reports on standard error which device `auto` chose. Throws errc::config if that cannot be compiled, and
    // errc::device if the machine lacks the device.
    [[nodiscard]] compiled_functions const& on(device_choice const& device, held_weights weights = held_weights::f32,
                                               needed_work needed = needed_work::all) const;

    // Throws what on() throws about the device, without compiling anything.
    void require_device(device_choice const& device) const;

    // Whether the work for a key of `work` is compiled into the program.
    [[nodiscard]] bool is_compiled_for(std::string const& device) const { return work.contains(device); }
    [[nodiscard]] bool is_autoregressive() const { return sizes.index() == 1; }
    // Only for a CALM.
    [[nodiscard]] configuration<any_head> const& calm() const { return std::get<0>(sizes); }
    // Only for an autoregressive model.
    [[nodiscard]] autoregressive_configuration const& autoregressive() const { return std::get<1>(sizes); }
};

// Whether a key of entry::work is of an NVIDIA GPU.
inline bool is_of_cuda(std::string const& device) {
    return device.starts_with("cuda");
}

// Those compiled into the program, sorted by name.
std::vector<entry> const& compiled_configurations();

// Called at program start by the source files in configs/, once per device they are compiled for. `device` is a key of
// entry::work.
bool register_configuration(std::string const& name, decltype(entry::sizes) const& sizes, recipes const& defaults,
                            std::string const& device, compiled_functions work);

// Finds a configuration by name: a compiled one, or NAME:KEY=VALUE,... for one with other sizes on demand
// (plugin/chosen_sizes.hpp). Throws errc::config with the compiled ones and the command that compiles this one, or, for
// NAME@DEVICE, with the options to give.
entry const& configuration_named(std::string const& name);
// As configuration_named(), and the configuration must be of a CALM or of an autoregressive model. Otherwise throws
// errc::config with the command to use instead.
entry const& calm_named(std::string const& name);
entry const& autoregressive_named(std::string const& name);

// Reads and checks the model in a directory given on the command line, for a CALM with the autoencoder in another one
// if that is given. Reports weight files that are present but unused.
stored_model opened_model(std::string const& directory, std::string const& autoencoder = "");

// A configuration with the sizes of a stored model; for an autoencoder, any configuration that contains it. If none is
// compiled into the program, it is one on demand. Throws errc::config with the sizes that no configuration allows, or,
// for a head from outside the library, with the source file to compile.
entry const& configuration_of(stored_model const& model);

// Problems with --head-OPTION values, one sentence each: the configuration's head lacks the option, or the value is out
// of range.
std::vector<std::string> head_problems(entry const& one, head_numbers const& numbers);
// The problem with the value of one --head option, or empty. `owner` names the model in the message.
std::string head_problem(number_field const& field, double value, std::string const& owner);

}  // namespace calm::apps
