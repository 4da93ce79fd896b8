// SPDX-License-Identifier: GPL-2.0

//! The device of a path, and its events.
//!
//! # Context
//!
//! As stated for each function; `via` is a spinlock, held for a few instructions.

use kernel::sync::{
    rcu,
    Arc, //
};
use rtrs_bindings::{
    errno,
    ib::{
        Device,
        DeviceEvent,
        DeviceId,
        DeviceName,
        Endpoint,
        SockAddr, //
    },
};

use super::Path;
use crate::{
    link::{
        Link,
        LinkCore, //
    },
    logic::path_state::State, //
};

/// Device and addresses of the latest connection; kept when that is gone.
#[derive(Clone, Copy)]
pub(crate) struct Via {
    /// The id of the device. While a link holds the device, no other one has the id.
    id: DeviceId,
    /// The name at the last event of the device.
    device: DeviceName,
    pub(crate) port: u32,
    pub(crate) src: SockAddr,
}

impl Path {
    /// Device and port of the latest connection.
    pub(crate) fn via(&self) -> Option<Via> {
        *self.via.lock()
    }

    /// Returns the name of the device: its present name if there is a link, else its last one. Any
    /// context.
    pub(crate) fn device_name(&self) -> Option<DeviceName> {
        let now = {
            let guard = rcu::read_lock();
            let service = self.link(&guard).and_then(|link| link.endpoint(0));
            service.and_then(Endpoint::device).map(Device::name)
        };
        now.or_else(|| self.via().map(|via| via.device))
    }

    /// The service connection is up over this device and from this address.
    pub(crate) fn connected_via(&self, ep: &Endpoint<LinkCore>) {
        let (Some(device), Some(src)) = (ep.device(), ep.local()) else {
            return;
        };
        *self.via.lock() = Some(Via {
            id: device.id(),
            device: device.name(),
            port: ep.port(),
            src,
        });
        self.end_creation(true);
    }

    /// Handles an event of a device, which may be the path's. Does not sleep.
    pub(crate) fn device_event(self: &Arc<Self>, device: &Device, event: DeviceEvent) {
        let name = device.name();
        // Its name may change, and a device that comes again by that name is another one.
        let (same, ours, port) = match &mut *self.via.lock() {
            Some(via) if via.id == device.id() => {
                via.device = name;
                (true, true, via.port)
            }
            Some(via) => (false, via.device == name, via.port),
            // Not known yet, so it may be the path's.
            None => (true, true, 0),
        };
        let is_port = |p| port == 0 || p == port;
        match event {
            DeviceEvent::Added if ours => self.notify(|notes| notes.device_back = true),
            DeviceEvent::PortActive(p) if ours && is_port(p) => {
                self.notify(|notes| notes.device_back = true);
            }
            // An address may have moved to this device or port. An attempt in progress is not
            // disturbed.
            DeviceEvent::Added | DeviceEvent::PortActive(_)
                if self.state() != State::Connecting =>
            {
                self.notify(|notes| notes.device_back = true);
            }
            DeviceEvent::GidChange(p) => {
                if same && is_port(p) {
                    self.fail_link_if(|link| !link.has_source(), "address is gone");
                }
                // The address that came may be this path's.
                if !self.state().has_link() {
                    self.notify(|notes| notes.address_change = true);
                }
            }
            DeviceEvent::PortDown(p) if same && is_port(p) => {
                self.fail_link_if(|_| true, "port down");
            }
            DeviceEvent::Fatal if same => self.fail_link_if(|_| true, "device is broken"),
            // Connections handle a removal by themselves.
            _ => {}
        }
    }

    /// Fails the link if the events of its device came before it was published. Process context.
    pub(super) fn look_at_port(&self) {
        self.fail_link_if(|link| !link.has_source(), "address is gone");
        self.fail_link_if(|link| !link.port_is_active(), "port down");
    }

    /// Fails the link, if there is one and `is_so` is true for it. Any context.
    fn fail_link_if(&self, is_so: impl FnOnce(&Link) -> bool, why: &'static str) {
        let guard = rcu::read_lock();
        if let Some(link) = self.link(&guard) {
            if is_so(link) {
                link.core.fail(why, errno::ENETDOWN.to_errno());
            }
        }
    }
}
