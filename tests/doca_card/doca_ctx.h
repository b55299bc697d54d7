// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <doca_error.h>
#include <doca_types.h>

extern "C" {
struct doca_ctx;
enum doca_ctx_states {
  DOCA_CTX_STATE_IDLE = 0,
  DOCA_CTX_STATE_STARTING = 1,
  DOCA_CTX_STATE_RUNNING = 2,
  DOCA_CTX_STATE_STOPPING = 3,
};
using doca_ctx_state_changed_callback_t = void (*)(const doca_data data, doca_ctx* context, doca_ctx_states before,
                                                   doca_ctx_states now);
doca_error_t doca_ctx_start(doca_ctx* context);
doca_error_t doca_ctx_stop(doca_ctx* context);
doca_error_t doca_ctx_get_state(const doca_ctx* context, doca_ctx_states* state);
doca_error_t doca_ctx_set_user_data(doca_ctx* context, doca_data data);
doca_error_t doca_ctx_set_state_changed_cb(doca_ctx* context, doca_ctx_state_changed_callback_t callback);
}
