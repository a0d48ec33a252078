#pragma once
/// \file
/// The registry of heads: the library's own and those that a program adds. Files and command lines name heads from it.
/// \shows{tests/io/heads_directory_test.cpp,a_head_is_found_by_its_names}

#include <string>
#include <string_view>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/model/config.hpp"
#include "calm/model/head.hpp"
#include "calm/model/heads/diffusion.hpp"
#include "calm/model/heads/drafted.hpp"
#include "calm/model/heads/energy.hpp"
#include "calm/model/heads/flow.hpp"
#include "calm/model/heads/margin.hpp"

namespace calm {

/// The head of a configuration that does not name one.
using default_head = decltype(configuration<>::head);

namespace detail {
inline std::vector<head_traits const*>& all_heads() {
    static std::vector<head_traits const*> all{&head_traits_of<energy>(), &head_traits_of<flow>(),
                                               &head_traits_of<diffusion>(), &head_traits_of<margin>(),
                                               &head_traits_of<drafted>()};
    return all;
}
}  // namespace detail

/// All registered heads in order of registration, the library's first.
inline std::vector<head_traits const*> const& known_heads() {
    return detail::all_heads();
}

/// Registers a head, so that models with it can be read from files. Call it at program start; repeated calls have no
/// effect. Not thread-safe. Throws errc::usage if a different head has the same name or architecture.
template <generative_head Head> void add_head() {
    auto const& added = head_traits_of<Head>();
    for (auto const* const known : known_heads()) {
        if (known == &added) return;
        require(known->name != added.name && known->architecture != added.architecture, errc::usage,
                "calm::add_head: expected a name and an architecture that no other head has, found ", added.name,
                " and ", added.architecture, "; another head has one of them");
    }
    detail::all_heads().push_back(&added);
}

/// Finds a head by name ("energy") or architecture ("EnergyTransformer"); null if there is none.
inline head_traits const* find_head(std::string_view name_or_architecture) {
    for (auto const* const head : known_heads())
        if (head->name == name_or_architecture || head->architecture == name_or_architecture) return head;
    return nullptr;
}

/// Finds a head by name. Throws errc::config with a list of known heads.
inline head_traits const& head_named(std::string_view name) {
    std::string names;
    for (auto const* const head : known_heads()) {
        if (head->name == name) return *head;
        bool const is_last = head == known_heads().back();
        names += (names.empty() ? "" : is_last ? " and " : ", ") + std::string(head->name);
    }
    throw error(errc::config,
                sentence("calm::head_named: expected a head among ", names, ", found '", std::string(name), "'"));
}

}  // namespace calm
