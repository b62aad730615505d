declare module "prismjs/components/prism-core.js" {
  import * as Prism from "prismjs";
  export default Prism;
}
declare module "prismjs/components/*.js";
