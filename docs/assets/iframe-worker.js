// Search runs in a worker, which browsers refuse to a page that was opened as a file. There it runs in a hidden frame
// instead. Material's plug-in `offline` would load such a stand-in from elsewhere; it finds this one by its name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.inside = new Promise((resolve, reject) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow;
          const load = (address) =>
            new Promise((loaded, failed) => {
              const script = inside.document.createElement("script");
              script.src = address;
              script.onload = loaded;
              script.onerror = failed;
              inside.document.body.appendChild(script);
            });
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          inside.importScripts = (...addresses) =>
            addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
          load(url).then(() => resolve(inside), reject);
        };
      });
      document.body.appendChild(this.frame);
    }
    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
