#include "registry.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <string>

#include "plugin/chosen_sizes.hpp"
#include "plugin/named_sizes.hpp"
#include "plugin/source_text.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::apps;
using namespace calm::test;

namespace {

// A model that was never compiled into a program.
stored_model odd_model() {
    auto d = model_description::of(model_kind::calm);
    d.vocab_size = 97;
    stored_model m{"some/where", d};
    m.sizes.autoencoder = {.vocab_size = 97,
                           .patch_size = 3,
                           .hidden_size = 34,
                           .intermediate_size = 80,
                           .num_encoder_layers = 2,
                           .num_decoder_layers = 4,
                           .latent_size = 17};
    m.sizes.hidden_size = 48;
    m.sizes.intermediate_size = 96;
    m.sizes.num_hidden_layers = 2;
    m.sizes.num_attention_heads = 4;
    m.sizes.num_key_value_heads = 2;
    m.sizes.head = any_head(energy{.num_mlp_layers = 3, .noise_size = 16});
    return m;
}

std::string complaint(stored_model const& m) {
    try {
        static_cast<void>(configuration_of(m));
    } catch (error const& thrown) {
        BOOST_TEST((thrown.code() == errc::config));
        return thrown.what();
    }
    return "found";
}

char const* const unit = R"(#include "compiled_configuration.hpp"

namespace {

constexpr calm::configuration<> sizes{
    .autoencoder = {.vocab_size = 97,
                    .patch_size = 3,
                    .hidden_size = 34,
                    .intermediate_size = 80,
                    .num_encoder_layers = 2,
                    .num_decoder_layers = 4,
                    .latent_size = 17},
    .hidden_size = 48,
    .intermediate_size = 96,
    .num_hidden_layers = 2,
    .num_attention_heads = 4,
    .num_key_value_heads = 2,
    .head = {.num_mlp_layers = 3, .noise_size = 16}};

bool const registered = calm::apps::compile_configuration<sizes>("where", calm::apps::recipes());

}  // namespace
)";

}  // namespace

namespace den {
// A head defined outside the library.
struct fox {
    index_t tail = 7;
    static constexpr std::string_view name = "fox";
    static constexpr std::string_view architecture = "FoxTransformer";
    static constexpr std::string_view type = "den::fox";
    using objective = energy_objective;
    [[nodiscard]] constexpr head_flops flops(head_dimensions const&) const { return {0, 0, 0}; }
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(number_field{.key = "tail", .what = "tail", .least = 2, .most = 8}, self.tail);
    }
    friend constexpr bool operator==(fox const&, fox const&) = default;
};
}  // namespace den

BOOST_AUTO_TEST_CASE(a_stored_model_finds_its_configuration_by_its_sizes) {
    for (auto const& one : compiled_configurations()) {
        if (one.is_autoregressive()) continue;
        auto m = odd_model();
        m.sizes = one.calm();
        BOOST_TEST(configuration_of(m).calm().hidden_size == one.calm().hidden_size);
        m.description.calm.emplace().configuration = "another name";
        BOOST_TEST(configuration_of(m).calm().autoencoder.patch_size == one.calm().autoencoder.patch_size);
        m.description.calm->configuration = one.name;
        BOOST_TEST(configuration_of(m).name == one.name);
        auto autoencoder = m;
        autoencoder.description.kind = model_kind::autoencoder;
        BOOST_TEST(configuration_of(autoencoder).name == one.name);
    }
}

// A model in the layout of LlamaForCausalLM.
stored_model odd_llama() {
    stored_model m;
    m.directory = "some/where";
    auto& d = m.description = model_description::of(model_kind::autoregressive);
    d.vocab_size = 211;
    d.llama.hidden_size = 40;
    d.llama.intermediate_size = 96;
    d.llama.num_hidden_layers = 3;
    d.llama.num_attention_heads = 4;
    d.llama.num_key_value_heads = 2;
    d.rope_theta = 50'000;
    d.tie_word_embeddings = true;
    return m;
}

char const* const llama_unit = R"(#include "compiled_configuration.hpp"

namespace {

constexpr calm::autoregressive_configuration sizes{
    .llama = {.hidden_size = 40,
              .intermediate_size = 96,
              .num_hidden_layers = 3,
              .num_attention_heads = 4,
              .num_key_value_heads = 2,
              .rope_theta = 50000},
    .tie_word_embeddings = true,
    .vocab_size = 211};

bool const registered = calm::apps::compile_configuration<sizes>("where", calm::apps::recipes());

}  // namespace
)";

BOOST_AUTO_TEST_CASE(an_autoregressive_model_finds_its_configuration_or_makes_one) {
    for (auto const& one : compiled_configurations()) {
        if (!one.is_autoregressive()) continue;
        auto m = odd_llama();
        auto const& c = one.autoregressive();
        auto& d = m.description;
        d.llama = c.llama;
        d.rope_theta = c.llama.rope_theta;
        d.rms_norm_eps = c.llama.rms_norm_eps;
        d.tie_word_embeddings = c.tie_word_embeddings;
        BOOST_TEST(configuration_of(m).is_autoregressive());
        BOOST_TEST((configuration_of(m).autoregressive().llama == c.llama));
        BOOST_CHECK_THROW(calm_named(one.name), calm::error);
        BOOST_TEST(autoregressive_named(one.name).name == one.name);
    }
    auto const& made = configuration_of(odd_llama());
    BOOST_TEST(made.name == "where");
    BOOST_TEST(made.on_demand);
    BOOST_TEST(made.work.empty());
    BOOST_TEST(unit_of(made.sizes, "where") == llama_unit);
    auto const source = plugin_source(made.sizes, "emulated-bf16", plugin_part::loading);
    BOOST_TEST(source.starts_with("#define CALM_SPACE bf16_weights_on<emulated>\n#include \"calm/emulated.hpp\"\n"));
    BOOST_TEST(has(source, "#include \"compiled_loading.hpp\"\n"));
    BOOST_TEST(has(source, "    to = calm::apps::loading_of<sizes>();"));
    auto m = odd_llama();
    m.description.llama.num_key_value_heads = 3;
    BOOST_TEST(has(complaint(m), "expected num_key_value_heads to divide num_attention_heads"));
    m = odd_llama();
    m.description.rms_norm_eps = 1e-5;
    m.description.rope_theta = 500000.5;
    m.description.llama.head_dim = 16;
    m.description.llama.rope_scaling = {.type = rope_type::llama3, .factor = 8};
    BOOST_TEST(has(unit_of(configuration_of(m).sizes, "where"),
                   ".num_key_value_heads = 2,\n"
                   "              .head_dim = 16,\n"
                   "              .rope_theta = 500000.5,\n"
                   "              .rope_scaling = {.type = calm::rope_type::llama3, .factor = 8, .low_freq_factor = 1, "
                   ".high_freq_factor = 4, .original_max_position_embeddings = 8192},\n"
                   "              .rms_norm_eps = 1e-05},\n"));
    m.description.llama.rope_scaling = {.type = rope_type::linear, .factor = 2.5};
    BOOST_TEST(has(unit_of(configuration_of(m).sizes, "where"),
                   ".rope_scaling = {.type = calm::rope_type::linear, .factor = 2.5},\n"));
}

BOOST_AUTO_TEST_CASE(sizes_that_are_not_compiled_make_a_configuration_on_demand) {
    auto const& made = configuration_of(odd_model());
    BOOST_TEST(made.on_demand);
    BOOST_TEST(&configuration_of(odd_model()) == &made);
    BOOST_TEST(unit_of(made.sizes, "where") == unit);
    // One plug-in serves all vocabularies.
    auto m = odd_model();
    m.sizes.autoencoder.vocab_size = 98;
    auto const source = plugin_source(made.sizes, "cpu", plugin_part::loading);
    BOOST_TEST(plugin_source(m.sizes, "cpu", plugin_part::loading) == source);
    m.sizes.autoencoder.patch_size = 5;
    BOOST_TEST(plugin_source(m.sizes, "cpu", plugin_part::loading) != source);
    BOOST_TEST(plugin_source(made.sizes, "emulated", plugin_part::loading) != source);
    auto const on_gpu = plugin_source(made.sizes, "cuda", plugin_part::loading);
    BOOST_TEST(on_gpu.starts_with("#define CALM_SPACE space<cuda>\n#include \"calm/cuda.hpp\"\n"));
    BOOST_TEST((has(source, "__VERSION__") && !has(on_gpu, "__VERSION__")));  // nvcc may call another g++
    BOOST_TEST(
        has(plugin_source(made.sizes, "cpu", plugin_part::training), "    to = calm::apps::training_of<sizes>();"));
    BOOST_TEST(has(plugin_source(made.sizes, "cpu", plugin_part::generating),
                   "extern \"C\" void calm_generating(calm::apps::loading& to) {\n"
                   "    to = calm::apps::generating_of<sizes>();\n"));

    m = odd_model();
    m.sizes.input = input_kind::both;
    BOOST_TEST(has(unit_of(m.sizes, "x"), ".noise_size = 16},\n    .input = calm::input_kind::both};"));
    m.description.kind = model_kind::autoencoder;
    BOOST_TEST((configuration_of(m).calm().autoencoder == m.sizes.autoencoder));
    m = odd_model();
    m.sizes.head = any_head(flow{.num_mlp_layers = 3});
    BOOST_TEST(has(unit_of(m.sizes, "x"), "calm::configuration<calm::flow> sizes{"));
    BOOST_TEST(configuration_of(m).defaults.calm.objective.samples() == flow::objective{}.samples);
    // The model's own name, unless it has unusual characters or belongs to another configuration.
    m = odd_model();
    m.description.calm.emplace().configuration = "mine";
    BOOST_TEST(configuration_of(m).name == "mine");
    m.description.calm->configuration = "../evil";
    BOOST_TEST(configuration_of(m).name == "where");
    if (!compiled_configurations().empty()) {
        m.description.calm->configuration = compiled_configurations()[0].name;
        BOOST_TEST(configuration_of(m).name == "where");
    }
}

BOOST_AUTO_TEST_CASE(a_head_from_outside_comes_with_the_file_to_compile) {
    auto m = odd_model();
    m.sizes.head = any_head(den::fox{.tail = 5});
    auto const text = unit_of(m.sizes, "where");
    BOOST_TEST(text.starts_with("#include \"compiled_configuration.hpp\"\n// and, by a line here, the header "
                                "of den::fox\n\nnamespace {\n\nconstexpr calm::configuration<den::fox> sizes{"));
    BOOST_TEST(has(text, ".head = {.tail = 5}"));
    auto const said = complaint(m);
    BOOST_TEST(has(said, "some/where: expected a head of the library, found den::fox"), said);
    BOOST_TEST(has(said, "Write this as apps/configs/where.cpp:\n\n" + text), said);
    BOOST_TEST(has(said, "where\" && cmake --build --preset release"), said);
}

BOOST_AUTO_TEST_CASE(sizes_of_no_configuration_are_reported) {
    auto m = odd_model();
    m.description.rope_theta = 5e5;
    m.description.rms_norm_eps = 1e-5;
    m.description.llama.rope_scaling = {.type = rope_type::linear, .factor = 2};
    for (auto const* const line :
         {"rope_theta: expected 10000, found 500000", "rms_norm_eps: expected 1e-06, found 1e-05",
          "rope_scaling: expected none, found linear, factor 2"})
        BOOST_TEST(has(complaint(m), line), complaint(m));
    m = odd_model();
    m.sizes.num_attention_heads = 5;
    BOOST_TEST(has(complaint(m), "expected num_attention_heads to divide hidden_size"));
    m.sizes.num_attention_heads = 16;
    m.sizes.num_key_value_heads = 16;
    BOOST_TEST(has(complaint(m), "expected an even head_dim, by default hidden_size / num_attention_heads"));
    m = odd_model();
    m.sizes.autoencoder.num_encoder_layers = 3;
    BOOST_TEST(has(complaint(m), "expected even numbers of encoder and decoder layers"));
    BOOST_TEST(!has(complaint(m), "compiled_configuration.hpp"));
}

namespace {

any_sizes sizes_to_compare(entry const& one) {
    return without_vocabulary(one.sizes);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_sizes_of_every_configuration_have_a_name) {
    std::size_t files = 0;
    for (auto const& file : std::filesystem::directory_iterator(CALM_FIXTURES_DIR "/../../apps/configs")) {
        if (file.path().extension() != ".cpp") continue;
        ++files;
        BOOST_TEST((sizes_named(file.path().stem().string()) != nullptr), file.path().string());
    }
    BOOST_TEST(files > 10U);
    BOOST_TEST((sizes_named("none") == nullptr));
    for (auto const& one : compiled_configurations()) {
        auto const* const sizes = sizes_named(one.name);
        BOOST_TEST_REQUIRE((sizes != nullptr), one.name);
        BOOST_TEST((without_vocabulary(*sizes) == sizes_to_compare(one)), one.name);
    }
}

// A program that was installed cannot be built with more configurations, but it compiles sizes on demand.
BOOST_AUTO_TEST_CASE(a_configuration_that_is_not_compiled_is_made_from_one_that_is) {
    auto const refused = [](std::string const& name) {
        return sentence_of<error>([&] { static_cast<void>(configuration_named(name)); });
    };
    auto const& tiny = calm_named("tiny");
    for (auto const* const name :
         {"tiny-flow", "tiny-k2-drafted", "tiny-k8", "text", "small", "calm-m", "tiny-margin"}) {
        auto const* const sizes = sizes_named(name);
        BOOST_TEST_REQUIRE((sizes != nullptr), name);
        auto const changed = name_with_sizes(tiny, *sizes);
        BOOST_TEST((sizes_to_compare(configuration_named(changed)) == without_vocabulary(*sizes)), changed);
    }
    BOOST_TEST(name_with_sizes(tiny, tiny.sizes) == "tiny");
    BOOST_TEST(name_with_sizes(tiny, *sizes_named("tiny-flow")) == "tiny:head_type=flow");
    BOOST_TEST(name_with_sizes(autoregressive_named("tiny-ar"), *sizes_named("tiny-ar-patch")) == "tiny-ar");

    auto const said = refused("tiny-diffusion");
    BOOST_TEST(said.starts_with("the configuration 'tiny-diffusion' is not compiled into this program; "), said);
    BOOST_TEST(has(said, ". --config tiny --set head_type=diffusion has the same sizes and needs no new build"), said);
    BOOST_TEST(has(said, "If apps/configs/tiny-diffusion.cpp is there, this compiles it: cmake --preset"), said);
    BOOST_TEST(has(refused("tiny-ar-patch"), ". --config tiny-ar has the same sizes."));
    BOOST_TEST(has(refused("tinny"), "; did you mean tiny?"));
    BOOST_TEST(!has(refused("tinny"), "--set"));
    // The suffix of CALM_CONFIGS is an option here.
    for (auto const* const name : {"tiny@cuda", "tiny@cuda-bf16"})
        BOOST_TEST(refused(name) == "expected the name of a configuration without a device, found '" +
                                        std::string(name) + "'; give --config tiny --device cuda");
    BOOST_TEST(has(refused("tiny@gpu"), "is not compiled into this program"));
}
