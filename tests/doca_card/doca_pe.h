// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <doca_error.h>
#include <doca_types.h>
#include <cstdint>

extern "C" {
struct doca_ctx;
struct doca_pe;
struct doca_task;
doca_error_t doca_pe_create(doca_pe** engine);
doca_error_t doca_pe_destroy(doca_pe* engine);
doca_error_t doca_pe_connect_ctx(doca_pe* engine, doca_ctx* context);
std::uint8_t doca_pe_progress(doca_pe* engine);
doca_error_t doca_pe_get_notification_handle(const doca_pe* engine, doca_notification_handle_t* handle);
doca_error_t doca_pe_clear_notification(doca_pe* engine, doca_notification_handle_t handle);
doca_error_t doca_pe_request_notification(doca_pe* engine);
doca_error_t doca_task_submit(doca_task* task);
void doca_task_free(doca_task* task);
doca_error_t doca_task_get_status(const doca_task* task);
}
