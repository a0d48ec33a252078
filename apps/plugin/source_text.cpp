#include "plugin/source_text.hpp"

#include <utility>
#include <variant>

#include "processor.hpp"

namespace calm::apps {

namespace {

// A head from outside the library needs a header that only its author knows.
std::string includes_of(any_sizes const& sizes) {
    std::string usual = "#include \"compiled_configuration.hpp\"\n";
    if (sizes.index() == 1) return usual;
    auto const head = head_type_of(std::get<0>(sizes).head);
    return head.empty() || head.starts_with("calm::") ? usual
                                                      : usual + "// and, by a line here, the header of " + head + "\n";
}

// Refuses another compiler and other instruction sets. The g++ that nvcc calls may be another one, as in the build.
std::string checks_of_build(std::string const& device) {
    auto const& built = compiled_for;
    std::string text;
    if (!is_of_cuda(device))
        text = "static_assert(std::string_view(__VERSION__) == \"" __VERSION__ "\",\n"
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
    return includes_of(sizes) + "\nnamespace {\n\n" + declaration_of(sizes) +
           "\nbool const registered = "
           "calm::apps::compile_configuration<sizes>(\"" +
           name + "\", calm::apps::recipes());\n\n}  // namespace\n";
}

std::string name_of(plugin_part part) {
    return part == plugin_part::generating ? "generating" : part == plugin_part::loading ? "loading" : "training";
}

std::string plugin_source(any_sizes const& sizes, std::string const& device, plugin_part part) {
    auto const name = name_of(part);
    std::string const made = part == plugin_part::training ? "training" : "loading";
    return space_of(device) + "#include \"compiled_" + name + ".hpp\"\n\n" + checks_of_build(device) +
           "\nnamespace {\n\n" + declaration_of(without_vocabulary(sizes)) +
           "\n}  // namespace\n\nextern \"C\" void calm_" + name + "(calm::apps::" + made +
           "& to) {\n    to = calm::apps::" + name + "_of<sizes>();\n}\n";
}

}  // namespace calm::apps
