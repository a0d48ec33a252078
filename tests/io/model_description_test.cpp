#include "calm/io/model_description.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace {

// Records the visited keys.
struct keys {
    std::vector<std::string> seen;
    void operator()(std::string_view key, auto const&, bool = false) { seen.emplace_back(key); }
    void only(std::string_view key, auto, bool = false) { seen.emplace_back(key); }
    void only_if_there(std::string_view key, auto, bool = false) { seen.emplace_back(key); }
    void either(std::string_view key, std::string_view other, auto const&) {
        seen.emplace_back(key);
        seen.emplace_back(other);
    }
    void rotary_angles(double, calm::rotary_scaling const&) {
        for (auto const* const key : {"rope_theta", "rope_scaling", "rope_parameters"}) seen.emplace_back(key);
    }
    void head_dim(calm::index_t, calm::index_t) { seen.emplace_back("head_dim"); }
    void operator()(calm::number_field const& field, calm::index_t) { seen.emplace_back(field.key); }
    void number(calm::field_value const& one) { seen.emplace_back(one.field.key); }
    void object(std::string_view key, auto const&, auto const&) { seen.emplace_back(key); }
};

std::vector<std::string> keys_of(calm::model_kind kind) {
    keys noted;
    auto const description = calm::model_description::of(kind);
    calm::model_description::visit(description, noted);
    std::sort(noted.seen.begin(), noted.seen.end());
    return noted.seen;
}

}  // namespace

BOOST_AUTO_TEST_CASE(kinds_have_their_published_names) {
    using calm::model_description;
    using calm::model_kind;
    BOOST_TEST(model_description::of(model_kind::autoencoder).architectures[0] == "Autoencoder");
    BOOST_TEST(model_description::of(model_kind::autoregressive).architectures[0] == "LlamaForCausalLM");
    BOOST_TEST(model_description::of(model_kind::autoregressive).model_type == "llama");
    BOOST_TEST(model_description::of(model_kind::calm).architectures[0] == "EnergyTransformer");
    BOOST_TEST(model_description::of(model_kind::calm, "flow").architectures[0] == "FlowTransformer");
    BOOST_TEST(model_description::of(model_kind::calm, "flow").model_type == "flow");
    BOOST_CHECK_EXCEPTION(model_description::of(model_kind::calm, "sofa"), calm::error, [](calm::error const& thrown) {
        return thrown.code() == calm::errc::config &&
               std::string(thrown.what()).find("flow, diffusion, margin and drafted, found 'sofa'") !=
                   std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(every_kind_visits_each_key_once) {
    for (auto const kind : {calm::model_kind::autoencoder, calm::model_kind::calm, calm::model_kind::autoregressive}) {
        auto const keys = keys_of(kind);
        BOOST_TEST((std::adjacent_find(keys.begin(), keys.end()) == keys.end()));
        BOOST_TEST(std::binary_search(keys.begin(), keys.end(), "hidden_size"));
        BOOST_TEST(std::binary_search(keys.begin(), keys.end(), "calm"));
    }
    auto const calm_keys = keys_of(calm::model_kind::calm);
    BOOST_TEST(std::binary_search(calm_keys.begin(), calm_keys.end(), "ae_path"));
    BOOST_TEST(std::binary_search(calm_keys.begin(), calm_keys.end(), "noise_size"));
    BOOST_TEST(!std::binary_search(calm_keys.begin(), calm_keys.end(), "kl_clamp"));
}
