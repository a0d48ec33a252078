#pragma once
// The configurations that are compiled into a program. Each unit in configs/ registers one; programs find it by its
// name or by the sizes of a stored model, and call it without knowing a template.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "calm/io/stored_model.hpp"
#include "calm/train/evaluation.hpp"
#include "command/options.hpp"

namespace calm::apps {

// What training starts from where the command line says nothing.
struct recipes {
    autoencoder_recipe autoencoder = {};
    calm_recipe<any_objective> calm = {};
    autoregressive_recipe autoregressive = {};
};

// What a configuration does where it is compiled for a device. Of a CALM or of an autoregressive model; what trains the
// other is empty, and so is all that trains where weights are held in bf16.
struct compiled_work {
    std::function<int(train_options const&)> train_autoencoder = {};
    std::function<int(train_options const&)> train_calm = {};
    std::function<int(train_options const&)> train_autoregressive = {};
    std::function<evaluation(evaluate_options const&, stored_model const&)> evaluate = {};
    std::function<int(generate_options const&, stored_model const&)> generate = {};
    // Of writing one text, a draw per patch; of an autoregressive model a token.
    std::function<double(stored_model const&, execution_options const&)> seconds_per_patch = {};
    // FLOPs of Muon's products in an update of a model that it trains.
    std::function<double()> muon_of_autoencoder = {};
    std::function<double()> muon_of_model = {};
    // Why this machine, with the device of that number, cannot do it; empty where it can.
    std::function<std::string(int)> obstacle = {};
};

// A configuration of a CALM or of an autoregressive model, and its work by the name of the device that does it, with
// "-bf16" behind it where weights are held in that.
struct entry {
    std::string name;
    std::variant<configuration<any_head>, autoregressive_configuration> sizes = {};
    recipes defaults = {};
    std::map<std::string, compiled_work> work = {};

    // On a device, with weights held in fp32 or bf16. What auto takes is said on standard error. Throws errc::config
    // where the configuration is not compiled for that, naming the line that compiles it, and errc::device where the
    // machine has no such device.
    [[nodiscard]] compiled_work const& on(device_choice const& device, held_weights weights = held_weights::f32) const;

    [[nodiscard]] bool is_autoregressive() const { return sizes.index() == 1; }
    // Of a CALM.
    [[nodiscard]] configuration<any_head> const& calm() const { return std::get<0>(sizes); }
    // Of an autoregressive model.
    [[nodiscard]] autoregressive_configuration const& autoregressive() const { return std::get<1>(sizes); }
};

// In the order of their names.
std::vector<entry> const& compiled_configurations();

// Called while a program starts, by the units in configs/, once for each device, as entry::work names it, that one is
// compiled for.
bool register_configuration(std::string const& name, decltype(entry::sizes) const& sizes, recipes const& defaults,
                            std::string const& device, compiled_work work);

// The configuration of a name. Throws errc::config naming those that are compiled and the line that compiles it.
entry const& configuration_named(std::string const& name);
// The same where it has to be of a CALM, or of an autoregressive model. Throws errc::config too where it is of the
// other, naming the command for it.
entry const& calm_named(std::string const& name);
entry const& autoregressive_named(std::string const& name);

// The model of a directory that the command line names, read and checked. Says which files of weights are not read.
stored_model opened_model(std::string const& directory);

// The configuration that a stored model has the sizes of; an autoencoder's is any that shares its autoencoder. Throws
// errc::config with the sizes in which those that are compiled differ, and the unit to compile; or with what no
// configuration can have.
entry const& configuration_of(stored_model const& model);

// What stands against numbers of --head-OPTION: that the head of a configuration does not have one, or not of this
// value. A sentence each.
std::vector<std::string> head_problems(entry const& one, head_numbers const& numbers);
// What stands against the value of such a number, of the head of somebody; empty where nothing does.
std::string head_problem(number_field const& field, double value, std::string const& owner);

// A complete unit for apps/configs/ that registers the sizes of a stored model under a name. An autoencoder's leaves
// the language model as large as a configuration is by default.
std::string unit_of(stored_model const& model, std::string const& name);

}  // namespace calm::apps
