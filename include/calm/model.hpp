#pragma once
/// \file
/// Configurations, the autoencoder, the language model and its heads.
/// \shows{examples/07_head.hpp,guessing_head}

#include "calm/model/autoencoder.hpp"
#include "calm/model/autoencoder_losses.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/backbone.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/config.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/head.hpp"
#include "calm/model/head_network.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/heads/diffusion.hpp"
#include "calm/model/heads/drafted.hpp"
#include "calm/model/heads/energy.hpp"
#include "calm/model/heads/flow.hpp"
#include "calm/model/heads/margin.hpp"
#include "calm/model/llama.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/model/presets.hpp"
