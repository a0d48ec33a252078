#pragma once
// Reads a CALM whose autoencoder is in a directory that the caller names.

#include <algorithm>
#include <memory>
#include <string>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "calm/io/detail/whole_directory.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"

namespace calm {

// Reads the CALM in directory `named` with the autoencoder in directory `autoencoder`, anywhere. `ae_path`, which is
// not read, may name a directory of the machine that trained the model. Throws as read_model_description(named), and
// errc::model_file unless `named` is a CALM without tensors of an autoencoder, `autoencoder` is one, and both match.
inline stored_model read_model_description(std::string const& named, std::string const& autoencoder) {
    auto const ae = std::make_shared<stored_model const>(read_model_description(autoencoder));
    if (ae->description.kind != model_kind::autoencoder)
        throw error(errc::model_file, autoencoder, "",
                    "expected the directory of an autoencoder, found the directory of " +
                        std::string(name_of(ae->description.kind)));
    stored_model m{whole_directory(named), {}};
    auto const tokenizer = detail::read_description(m);
    auto& d = m.description;
    if (d.kind != model_kind::calm)
        throw error(errc::model_file, named, "",
                    "expected the directory of a CALM, found the directory of " + std::string(name_of(d.kind)) +
                        "; leave the autoencoder out");
    m.weights = std::make_shared<stored_weights const>(stored_weights::open(m.directory));
    if (m.weights->holds_file(tokenizer)) detail::refuse_tokenizer(m, tokenizer);
    if (std::ranges::any_of(m.weights->tensors(), [](auto& tensor) { return tensor.name.starts_with("ae_model."); }))
        throw error(errc::model_file, m.weights->path(), "",
                    "expected no tensors 'ae_model.*', found them: the CALM contains its autoencoder; leave " +
                        in_quotes(autoencoder) + " out");
    d.ae_path.clear();
    auto const described = m.sizes.autoencoder;
    m.sizes.autoencoder = ae->sizes.autoencoder;
    m.autoencoder = ae;
    detail::difference_list list;
    list.compare("vocab_size", d.vocab_size, ae->vocabulary());
    bool const states_all = d.calm && d.calm->autoencoder;
    list.compare(states_all ? described : detail::with_published(m.sizes.autoencoder, described), m.sizes.autoencoder);
    if (!list.lines.empty())
        throw error(errc::model_file, m.path(config_file), "",
                    "the autoencoder in " + autoencoder + " does not match it: " + list.lines.front() +
                        "; the files belong to different models");
    if (auto const lines = impossible_sizes(m); !lines.empty())
        throw error(errc::model_file, m.path(config_file), "", lines.front());
    check_tensors(*m.weights, detail::tied_names_of(d), detail::expected_tensors(m));
    return m;
}

}  // namespace calm
