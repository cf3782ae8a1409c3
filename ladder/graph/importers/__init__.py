"""Models from elsewhere as graphs: ``torch.export`` programs and ONNX files.

An importer is a driver that knows the file format, and a table from operator name to converter. Only the drivers import
torch or onnx, and only when they are called.
"""
