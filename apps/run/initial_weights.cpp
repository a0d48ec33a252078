#include "run/initial_weights.hpp"

#include "registry.hpp"

namespace calm::apps {

std::optional<stored_model> initial_model(std::string const& directory, train_options const& o,
                                          tokenizer const& tokenizer) {
    if (!directory.empty()) return read_model_description(directory);
    if (o.init.empty()) return std::nullopt;
    auto model = opened_model(o.init);
    auto const& calm = model.description.calm;
    if (calm && calm->tokenizer && calm->tokenizer->fingerprint != tokenizer.fingerprint())
        throw error(errc::tokenizer, o.init, "",
                    "expected a model of the tokenizer with fingerprint " + tokenizer.fingerprint() + ", found " +
                        calm->tokenizer->fingerprint + "; train with the tokenizer in its directory");
    return model;
}

}  // namespace calm::apps
