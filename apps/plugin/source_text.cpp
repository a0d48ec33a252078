#include "plugin/source_text.hpp"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "processor.hpp"
#include "program.hpp"

namespace calm::apps {

namespace {

std::string member(std::string_view name, std::string const& value) {
    return "." + std::string(name) + " = " + value;
}
std::string member(std::string_view name, index_t value) {
    return member(name, std::to_string(value));
}
std::string member(std::string_view name, double value) {
    return member(name, shortest(value));
}

// Designated initialisers of sizes, in the order of declaration that C++ requires.
template <class Sizes> std::vector<std::string> members_of(Sizes const& sizes) {
    std::map<index_t const*, std::string> by_place;
    Sizes::visit_fields(sizes, [&](number_field const& field, index_t const& size) {
        by_place.emplace(&size, member(field.key, size));
    });
    std::vector<std::string> all;
    for (auto& [place, text] : by_place) all.push_back(std::move(text));
    return all;
}

std::string scaling_value(rotary_scaling const& scaling) {
    std::vector<std::string> all{member("type", "calm::rope_type::" + std::string(name_of(scaling.type)))};
    rotary_scaling::visit_fields(scaling,
                                 [&](std::string_view name, auto value) { all.push_back(member(name, value)); });
    return "{" + joined(all, ", ") + "}";
}

// Includes what is not a size only if it is not the default.
std::string llama_members(llama_sizes const& c, std::string const& between) {
    llama_sizes const usual;
    auto all = members_of(c);
    if (c.head_dim != usual.head_dim) all.push_back(member("head_dim", c.head_dim));
    if (c.rope_theta != usual.rope_theta) all.push_back(member("rope_theta", c.rope_theta));
    if (c.rope_scaling != usual.rope_scaling) all.push_back(member("rope_scaling", scaling_value(c.rope_scaling)));
    if (c.rms_norm_eps != usual.rms_norm_eps) all.push_back(member("rms_norm_eps", c.rms_norm_eps));
    return joined(all, between);
}

// The C++ type of a head; "" for the default head.
std::string head_type(any_head const& head) {
    return head.facts == nullptr || head.name() == default_head::name ? "" : std::string(head.facts->type);
}

// A head from outside the library needs a header that only its author knows.
std::string includes_of(any_sizes const& sizes) {
    if (sizes.index() == 1) return "#include \"compiled_autoregressive.hpp\"\n";
    auto const head = head_type(std::get<0>(sizes).head);
    std::string const usual = "#include \"compiled_configuration.hpp\"\n";
    return head.empty() || head.starts_with("calm::") ? usual
                                                      : usual + "// and, by a line here, the header of " + head + "\n";
}

std::string text_of(configuration<any_head> const& c) {
    std::string const inner = ",\n                    ", outer = ",\n    ";
    std::string text = "constexpr calm::configuration<" + head_type(c.head) + "> sizes{\n    .autoencoder = {" +
                       member("vocab_size", c.autoencoder.vocab_size) + inner +
                       joined(members_of(c.autoencoder), inner) + "}" + outer + llama_members(llama_sizes_of(c), outer);
    std::vector<std::string> head;
    for (auto const& size : c.head.sizes) head.push_back("." + std::string(size.field.key) + " = " + text_of(size));
    if (!head.empty()) text += outer + ".head = {" + joined(head, ", ") + "}";
    if (c.input != input_kind::tokens)
        text += outer + ".input = calm::input_kind::" + (c.input == input_kind::latents ? "latents" : "both");
    return text + "};\n";
}

std::string text_of(autoregressive_configuration const& c) {
    std::string const tied = c.tie_word_embeddings ? ",\n    .tie_word_embeddings = true" : "";
    return "constexpr calm::autoregressive_configuration sizes{\n    .llama = {" +
           llama_members(c.llama, ",\n              ") + "}" + tied + ",\n    " + member("vocab_size", c.vocab_size) +
           "};\n";
}

std::string declaration_of(any_sizes const& sizes) {
    return std::visit([](auto const& c) { return text_of(c); }, sizes);
}

// Refuses another compiler and other instruction sets.
std::string checks_of_build() {
    auto const& built = compiled_for;
    std::string text =
        "static_assert(std::string_view(__VERSION__) == \"" __VERSION__ "\",\n"
        "              \"the compiler has another version than the program's: build the program again\");\n";
    for (auto const& [name, has] :
         {std::pair("__AVX__", built.avx), std::pair("__AVX2__", built.avx2), std::pair("__FMA__", built.fma),
          std::pair("__BMI2__", built.bmi2), std::pair("__AVX512F__", built.avx512f),
          std::pair("__AVX512BW__", built.avx512bw), std::pair("__AVX512DQ__", built.avx512dq),
          std::pair("__AVX512VL__", built.avx512vl), std::pair("__AVX512VNNI__", built.avx512vnni),
          std::pair("__AVX512BF16__", built.avx512bf16)})
        text += std::string(has ? "#ifndef " : "#ifdef ") + name +
                "\n#error the program was compiled for another processor: build it on this machine\n#endif\n";
    return text;
}

// What a source file defines and includes first to compile for a device.
std::string space_of(std::string const& device) {
    bool const bf16 = device.ends_with("-bf16");
    auto const backend = bf16 ? device.substr(0, device.size() - 5) : device;
    return "#define CALM_SPACE " + std::string(bf16 ? "bf16_weights_on" : "space") + "<" + backend + ">\n" +
           (backend == "cpu" ? "" : "#include \"calm/" + backend + ".hpp\"\n");
}

}  // namespace

std::string unit_of(any_sizes const& sizes, std::string const& name) {
    return includes_of(sizes) + "\nnamespace {\n\n" + declaration_of(sizes) + "\nbool const registered = calm::apps::" +
           (sizes.index() == 1 ? "compile_autoregressive" : "compile_configuration") + "<sizes>(\"" + name +
           "\", calm::apps::recipes());\n\n}  // namespace\n";
}

std::string plugin_source(any_sizes sizes, std::string const& device) {
    if (auto* const calm = std::get_if<0>(&sizes))
        calm->autoencoder.vocab_size = autoencoder_configuration{}.vocab_size;
    else
        std::get<1>(sizes).vocab_size = autoregressive_configuration{}.vocab_size;
    return space_of(device) + includes_of(sizes) + "\n" + checks_of_build() + "\nnamespace {\n\n" +
           declaration_of(sizes) +
           "\n}  // namespace\n\nextern \"C\" void calm_plugin(std::string const& name, calm::apps::recipes const& "
           "defaults,\n                            calm::apps::compiled_work& to) {\n    to = calm::apps::" +
           (sizes.index() == 1 ? "work_of_autoregressive" : "work_of_configuration") + "<sizes>(name, defaults);\n}\n";
}

}  // namespace calm::apps
