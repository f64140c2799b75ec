/* Who a card is, the same to CUDA and to NVML: its UUID, name and place on the bus. */
#ifndef SIM_IDENTITY_H
#define SIM_IDENTITY_H

#include "spec.h"

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" and its end. */
#define SIM_UUID_TEXT 41

#define SIM_PCI_VENDOR 0x10de
#define SIM_PCI_DEVICE 0x20b0

/* Determined by the directory of the card files and the card's place in the spec. */
void sim_card_uuid(unsigned card, unsigned char uuid[16]);
void sim_card_uuid_text(unsigned card, char text[SIM_UUID_TEXT]);

/* What CUDA sees of a card: of one that is cut (mig=1) the instance's UUID, "MIG-...", else the card's own. */
void sim_instance_uuid(const struct sim_spec *spec, unsigned card, unsigned char uuid[16]);
void sim_instance_uuid_text(const struct sim_spec *spec, unsigned card, char text[SIM_UUID_TEXT]);

/* "Simulated GPU 16GiB". */
void sim_card_name(const struct sim_spec *spec, unsigned card, char *name, size_t len);

/* The bus number: cards sit at 0000:01:00.0, 0000:02:00.0 and so on, in the order of the spec. */
static inline unsigned sim_card_bus(unsigned card) { return card + 1; }

/* The card at a PCI id written as domain:bus:device.function, domain:bus:device or bus:device.function. -1: a well
 * written id at which no card sits; -2: not a PCI id. */
int sim_card_at_bus_id(const struct sim_spec *spec, const char *id);

/* The cards that this process sees under CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, in the order of their CUDA
 * ordinals; `cards` has room for SIM_MAX_CARDS. Returns how many. */
unsigned sim_visible_cards(const struct sim_spec *spec, unsigned *cards);

#endif
