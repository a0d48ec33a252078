#pragma once
// A language model with random weights, wide enough that hidden states and noise decide the tokens.

#include <span>
#include <string>

#include "calm/model/calm.hpp"
#include "support/models.hpp"

namespace calm::test {

struct untrained {
    using model_type = calm_model<base>;
    arena<> values{"values"};
    model_type model;
    explicit untrained(index_t vocabulary = 97) : model(vocabulary) {
        allocate(model, values, static_cast<arena<>*>(nullptr));
        allocate(model.ae_model, values, static_cast<arena<>*>(nullptr));
        std::uint64_t first = 0;
        auto const draw = [&](std::string const&, auto& p) {
            std::span const all(p.value.data(), static_cast<std::size_t>(p.value.size()));
            normals(all.data(), p.value.size(), key{7, stream::initialise, 0}, first);
            first += all.size();
            for (auto& x : all) x = p.decays ? x * 0.4F : p.starts == role::gain ? 1 + x * 0.1F : x * 0.1F;
        };
        model.visit(draw);
        model.visit_autoencoder(draw);
    }
};

}  // namespace calm::test
