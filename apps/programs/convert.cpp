// convert: writes a stored model in another layout or precision.

#include "calm/io/convert_model.hpp"
#include "calm/io/open_weights.hpp"
#include "command/command_line.hpp"
#include "program.hpp"
#include "programs/programs.hpp"
#include "registry.hpp"
#include "stored_tables.hpp"
#include "text/text_output.hpp"
#include "text/tokenizer_json_writer.hpp"

namespace calm::apps {

int convert_main(int argc, char const* const* argv) {
    return run_program("convert", [&] {
        auto const options = read_options<convert_options>(argc, argv);
        if (!options) return 0;
        calm::conversion conversion{.as = {}, .shard_bytes = options->shard_bytes};
        if (options->dtype == "int8")
            conversion.as = calm::stored_type::i8;
        else if (!options->dtype.empty())
            conversion.as = calm::float_type_named(options->dtype);
        auto model = opened_model(options->model, options->autoencoder);
        add_special_ids(model);
        calm::convert_model(model, options->out, conversion);
        if (write_tokenizer_json(model, options->out))
            log_line("wrote tokenizer.json too: transformers reads " + options->out);
        text_output().put(tensor_table_text(calm::open_weights(options->out)));
        return 0;
    });
}

}  // namespace calm::apps
